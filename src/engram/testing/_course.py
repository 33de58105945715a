"""One method being taught, as the trainer teaches it, with a rest after every step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engram.gradients import Mix
from engram.methods import Entry, FinishedTask, MethodSettings, Setup
from engram.models import stacked
from engram.plan import generator
from engram.streams import Examples
from engram.testing._compare import require
from engram.testing._practice import Practice


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

    def course(
        self,
        seeds: Sequence[int] = (3, 4),
        device: str = "cpu",
        each: Sequence[MethodSettings] = (),
        dtype: torch.dtype = torch.float32,
    ) -> Course:
        """Return a fresh method, one run for each seed, that has not learned anything.

        Runs may have settings ``each`` of their own. Two that need not have the same bits are
        compared in float64: in float32 steps of learning may blow up what a machine rounds.
        """
        return Course(self, seeds, device, each, dtype)


class Course:
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

    def finish(self, after: Moment | None = None) -> Course:
        """Teach the rest, and return what has come of it."""
        for _ in self.teach(after):
            pass
        return self

    def predict(self, task: int, *, told: bool = True) -> Tensor:
        """Return the logits, [R, B, classes], for the probes of a task that is told or not."""
        return self.method.predict(*self.stream.probes(task), task if told else None)

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
