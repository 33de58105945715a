"""Benchmarks that train in a moment: noise around a prototype for each class of each task."""

from dataclasses import asdict, dataclass, fields
from unittest.mock import patch

import numpy as np
import torch

from engram.methods import method_entry
from engram.models import MLP, ResNet
from engram.plan import generator
from engram.protocol import _run, specify
from engram.settings import Settings
from engram.streams import Benchmark, Examples, Stream, TestBatch
from engram.streams.registry import register

TASKS = 3
EXAMPLES = 23  # no multiple of four: the last batch of a task is short
SMALL = {
    "learning_rate": 0.5,
    "batch_size": 4,
    "refresh_interval": 2,
    "memory_per_class": 2,
    "reference_batch": 3,
    "memory_size": 12,
    "draws": 2,
    "batches": 2,
}
"""Settings with which short tasks reach everything: windows end, memories are full."""


@dataclass(frozen=True)
class TinySettings(Settings):
    """There is nothing to be told."""


class Tiny(Stream):
    """8-bit noise for a perceptron."""

    most_examples = 100
    classes = classes_per_task = 3
    shape = (20,)
    features = 20

    def __init__(self, seeds, tasks, examples, *, settings=None, tuning=False, device="cpu"):  # noqa: ARG002
        super().__init__(seeds, tasks, examples)
        self.device = device

    def _draw(self, seed, name, task, count):
        source = generator(seed, name, task)
        centres = generator(seed, "centres", task).integers(30, 226, (self.classes, *self.shape))
        labels = source.integers(0, self.classes, count)
        noise = source.integers(-30, 30, (count, *self.shape))
        return (centres[labels] + noise).astype(np.uint8), labels

    def _deal(self, name, task, count):
        drawn = [self._draw(seed, name, task, count) for seed in self.seeds]
        inputs, labels = (np.stack(part) for part in zip(*drawn, strict=True))
        return Examples(
            torch.from_numpy(inputs).to(self.device), torch.from_numpy(labels).to(self.device)
        )

    def _training_examples(self, task):
        return self._deal("training", task, self.examples)

    def _joint_examples(self, part):
        return self._deal("training", part, self.examples)

    def test(self, task, *, curve=False):  # noqa: ARG002
        inputs, labels = self._deal("test", task, 12)
        return [TestBatch(self.normalise(inputs), labels)]

    def network(self):
        return MLP((self.features, 6, self.classes))

    def normalise(self, inputs):
        return inputs.float().div_(255)


class TinyImages(Tiny):
    """8 × 8 images for a residual network, which has batch norm."""

    shape = (3, 8, 8)
    features = 192

    def network(self):
        return ResNet(self.classes, 4)  # 3 classes: no run but the first begins at 16 bytes


def _register(name, build):
    made = Benchmark(
        name=name,
        settings=TinySettings,
        paper_tasks=TASKS,
        most_examples=Tiny.most_examples,
        build=build,
        checksum=lambda _: f"{name}-1",
    )
    register(name, made)


_register("tiny", Tiny)
_register("tiny-images", TinyImages)


def tiny_spec(method, benchmark="tiny", tasks=TASKS, examples=EXAMPLES, **overrides):
    """Return the spec of a method on a tiny benchmark, with settings that its tasks exhaust."""
    known = {item.name for item in fields(method_entry(method).settings)}
    small = {name: value for name, value in SMALL.items() if name in known}
    texts = {name: str(value) for name, value in {**small, **overrides}.items()}
    return specify(benchmark, method, tasks=tasks, examples=examples, overrides=texts)


def run_whole(spec, seeds, **options):
    """Run; return all that a stopped run must have in common with one that was not stopped.

    That is every outcome but for the seconds, and the state that the method is left with.
    """
    left = []

    class Kept(_run.Trainer):
        def train(self):
            super().train()
            left.append(self.method.state_dict())

    with patch.object(_run, "Trainer", Kept):
        outcomes = [asdict(outcome) for outcome in _run.run(spec, seeds, **options)]
    for outcome in outcomes:
        assert outcome.pop("seconds") > 0
    return outcomes, left


def same_bits(one, other):
    """Whether two nested things are the same in type, shape and every bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_bits(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    if isinstance(one, torch.Tensor):
        return same_bits(one.numpy(force=True), other.numpy(force=True))
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return one == other
