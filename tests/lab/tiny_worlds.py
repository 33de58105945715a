"""Benchmarks that train in a moment: noise around a prototype for each class of each task.

What a run in float32 ends with is up to the roundings of the machine's products, which its steps
blow up. What two ways of computing must have in common is compared in the worlds of double
precision, where roundings are too small for that; and where a run is to diverge it is made to.
"""

from dataclasses import asdict, dataclass, fields
from unittest.mock import patch

import numpy as np
import torch

from engram.lab.benchmarks import Benchmark, Examples, Stream, TestBatch, register
from engram.lab.methods import method_entry
from engram.lab.networks import MLP, ResNet
from engram.lab.plan import generator
from engram.lab.protocol import specify, trainer
from engram.lab.settings import Settings

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

    def training_examples(self, task):
        return self._deal("training", task, self.examples)

    def joint_examples(self, part):
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


class Double:
    """Makes a world one of double precision."""

    def initialise(self, network, seed):
        return super().initialise(network, seed).double()

    def normalise(self, inputs):
        return inputs.double().div_(255)


class TinyDouble(Double, Tiny):
    """The noise, for a perceptron in double precision."""


class TinyImagesDouble(Double, TinyImages):
    """The images, for a residual network in double precision."""


BROKEN = {2: (1, 12), 3: (0, 2), 4: (6, 5)}
"""By seed, the task and the example from which on there are no numbers."""


class Broken(Tiny):
    """Noise that is not a number in some tasks of some runs, which therefore diverge there."""

    _mark = 255  # brighter than any other input

    def _draw(self, seed, name, task, count):
        inputs, labels = super()._draw(seed, name, task, count)
        broken, first = BROKEN.get(seed, (None, 0))
        if (name, task) == ("training", broken):
            inputs[first:] = self._mark
        return inputs, labels

    def normalise(self, inputs):
        return super().normalise(inputs).masked_fill_(inputs == self._mark, torch.nan)


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
_register("tiny-double", TinyDouble)
_register("tiny-images-double", TinyImagesDouble)
_register("tiny-broken", Broken)


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

    built = trainer.build_method

    def build(*given):
        left.append(built(*given))
        return left[0]

    with patch.object(trainer, "build_method", build):
        outcomes = [asdict(outcome) for outcome in trainer.run(spec, seeds, **options)]
    left[0] = left[0].state_dict()
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
