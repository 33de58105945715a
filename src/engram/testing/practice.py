"""A stream small enough to be learned many times over, and a method that learns it step by step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.gradients import Mix
from engram.lab.benchmarks import Examples, Stream
from engram.lab.methods import Entry, FinishedTask, MethodSettings, Setup
from engram.lab.networks import MLP, stacked
from engram.lab.plan import generator
from engram.testing.assertions import require

_LENGTHS = (14, 3, 9, 10)  # unequal, and no multiple of four: the last batch of a task is short
_ONE_CLASS = 1  # the task of which each run sees a single class
_PROBES = 5
_HIDDEN = 5


class Practice(Stream):
    """Four tasks of 8-bit noise around a prototype for each class.

    Whoever teaches takes the examples with ``deal``; to the method it is closed. A method is
    shown each example once and meets a finished task again in ``FinishedTask`` alone.
    """

    most_examples = max(_LENGTHS)
    classes = classes_per_task = 3
    features = 64

    def __init__(
        self, seeds: Sequence[int], device: str, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(seeds, len(_LENGTHS), max(_LENGTHS))
        self.device, self.dtype = device, dtype

    def deal(self, task: int) -> Examples:
        """Return a task's examples, fresh, in the order that they are to be taught."""
        inputs, labels = zip(*(self._draw(seed, task) for seed in self.seeds), strict=True)
        return Examples(
            torch.from_numpy(np.stack(inputs)).to(self.device),
            torch.from_numpy(np.stack(labels)).to(self.device),
        )

    def probes(self, task: int) -> tuple[Tensor, Tensor]:
        """Return inputs [B, features - 2] to predict, and each run's columns (see TestBatch)."""
        shown = self.features - 2
        inputs = generator(task, "probe").random((_PROBES, shown), np.float32)
        columns = [
            generator(seed, "probe columns", task).permutation(self.features)[:shown]
            for seed in self.seeds
        ]
        return (
            torch.from_numpy(inputs).to(self.device, self.dtype),
            torch.from_numpy(np.stack(columns)).to(self.device),
        )

    def network(self) -> MLP:
        """Return a network that trains in no time."""
        return MLP((self.features, _HIDDEN, self.classes))

    def normalise(self, inputs: Tensor) -> Tensor:
        """Scale 8-bit inputs to [0, 1]."""
        return inputs.to(self.dtype).div_(255)

    def test(self, task: int, *, curve: bool = False) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise AssertionError(f"asks the stream for the test examples of task {task}.")

    def training_examples(self, task: int) -> NoReturn:
        """Refuse."""
        raise AssertionError(
            f"asks the stream for the training examples of task {task}: a method is shown each "
            "example once, and finds a finished task in FinishedTask alone."
        )

    def joint_examples(self, part: int) -> NoReturn:
        """Refuse."""
        self.training_examples(part)

    def _draw(self, seed: int, task: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        source = generator(seed, "practice", task)
        centres = source.integers(40, 216, (self.classes, self.features))
        labels = source.integers(0, self.classes, _LENGTHS[task])
        if task == _ONE_CLASS:
            labels[:] = labels[0]
        noise = source.integers(-40, 40, (_LENGTHS[task], self.features))
        return (centres[labels] + noise).astype(np.uint8), labels


class Moment(NamedTuple):
    """A rest: after a step of a task or, without a mix, after its end."""

    task: int
    step: int
    mix: Mix | None


@dataclass(frozen=True)
class Subject:
    """What is checked."""

    entry: Entry
    settings: MethodSettings

    def fresh_run(
        self,
        seeds: Sequence[int] = (3, 4),
        device: str = "cpu",
        each: Sequence[MethodSettings] = (),
        dtype: torch.dtype = torch.float32,
    ) -> TrainingRun:
        """Return a fresh method, one run for each seed, that has not learned anything.

        Runs may have settings ``each`` of their own. Two that need not have the same bits are
        compared in float64: in float32 steps of learning may blow up what a machine rounds.
        """
        return TrainingRun(self, seeds, device, each, dtype)


class TrainingRun:
    """A method and the stream that it learns.

    ``around`` surrounds every step. With ``spoil``, whatever the method was shown is overwritten
    once it should be done with it. With ``replay``, a step is taken as a captured one is: under
    the number of the first step of its kind, its own number known to the device alone.
    """

    def __init__(
        self,
        subject: Subject,
        seeds: Sequence[int],
        device: str,
        each: Sequence[MethodSettings],
        dtype: torch.dtype,
    ) -> None:
        self.stream = Practice(seeds, device, dtype)
        network = self.stream.network()
        drawn = [network.initialise(generator(seed, "parameters")).to(dtype) for seed in seeds]
        setup = Setup(network, stacked(drawn, device), tuple(seeds), self.stream, each)
        self.method = subject.entry.build(setup, subject.settings)
        self.batch_size = subject.settings.batch_size
        self.around: Callable[[], AbstractContextManager[object]] = nullcontext
        self.spoil = self.replay = False
        self._first_of: dict[Hashable, int] = {}

    def teach(self, after: Moment | None = None) -> Iterator[Moment]:
        """Teach all that comes after a moment, or everything."""
        task, step = (0, 0) if after is None else (after.task, after.step + 1)
        if after is not None and after.mix is None:
            task, step = task + 1, 0
        while task < self.stream.tasks:
            examples = self.method.stage_examples(self.stream.deal(task))
            if step == 0:
                self._first_of.clear()
                self.method.begin_task(task, examples.labels.clone())
            for number in range(step, -(-examples.labels.shape[1] // self.batch_size)):
                yield Moment(task, number, self._observe(number, examples))
            finished = FinishedTask(examples)
            self.method.end_task(task, finished)
            if self.spoil:
                _overwrite(*examples)
            yield Moment(task, 0, None)
            task, step = task + 1, 0

    def finish(self, after: Moment | None = None) -> TrainingRun:
        """Teach the rest, and return what has come of it."""
        for _ in self.teach(after):
            pass
        return self

    def predict(self, task: int, *, known: bool = True) -> Tensor:
        """Return the logits, [R, B, classes], for the probes of a task that is known or not."""
        return self.method.predict(*self.stream.probes(task), task if known else None)

    def result(self) -> list[Tensor]:
        """Return what is left in the end: weights, buffers, and what they predict of each task."""
        predictions = (self.predict(task) for task in range(self.stream.tasks))
        return [self.method.parameters, self.method.buffers, *predictions]

    def _observe(self, step: int, examples: Examples) -> Mix:
        part = slice(step * self.batch_size, (step + 1) * self.batch_size)
        stored, labels = examples.inputs[:, part].clone(), examples.labels[:, part].clone()
        batch = self.stream.batch(stored, labels)
        shown = batch.inputs.clone()
        number = self._number(step, whole=labels.shape[1] == self.batch_size)
        with self.around():
            mix = self.method.observe(number, stored, batch)
        same = torch.equal(stored, examples.inputs[:, part]) and torch.equal(batch.inputs, shown)
        require(same, "changes the inputs of the batch that it is shown: they are the stream's.")
        if self.spoil:
            _overwrite(stored, *batch[:2])
        return mix

    def _number(self, step: int, *, whole: bool) -> int:
        """Return the number that a step goes by."""
        if not (self.replay and whole):
            self.method.locate(None)
            return step
        self.method.locate(torch.tensor([step], device=self.stream.device))
        return self._first_of.setdefault(self.method.kind(step), step)


def _overwrite(*tensors: Tensor) -> None:
    for tensor in tensors:
        tensor.fill_(0)
