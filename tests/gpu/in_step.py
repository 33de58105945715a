"""The same steps taken in two ways, each from the numbers that the first way has come to.

What a run ends with in float32 is what its steps have made of every rounding, and roundings differ
by path. What one step does to the weights that it is given is the same up to rounding.
"""

import torch

from engram.lab.engine import CudaGraphLoop
from engram.lab.methods import FinishedTask, method_entry
from engram.lab.protocol import build_method, build_stream
from engram.lab.protocol.device import precision
from engram.lab.protocol.records import StepRecord
from engram.lab.protocol.spec import one_each

ROUNDING = 4  # of a weight, in units of its last place: it is moved, and maybe in two parts


class Taught:
    """Runs that are taught a step at a time, ``captured`` or plainly."""

    def __init__(self, spec, seeds, *, captured=True, record=False):
        specs = one_each(spec, seeds)
        self.stream = build_stream(specs[0], seeds, "cuda")
        self.method = build_method(specs, self.stream, "cuda")
        if not captured:
            self.method.capturable = False
        self.record = StepRecord(len(seeds)) if record else None
        self._joint = method_entry(specs[0].method).joint

    def begin(self, task):
        """Begin a task, and return how many steps it has."""
        serve = self.stream.train_jointly if self._joint else self.stream.train
        method = self.method
        self._examples = method.stage_examples(serve(task))
        method.begin_task(task, self._examples.labels)
        size = method.settings.batch_size
        self._loop = CudaGraphLoop(
            self._examples, size, capture=method.capturable, kind=method.kind
        )
        if self.record is not None:
            method.begin_recording()
            self.record.begin_task(len(self._loop), self._examples.labels.device)
        return len(self._loop)

    def take(self, step):
        with self._loop.advance(step + 1) as steps:
            for number, stored, labels, position in steps:
                self.method.locate(position)
                mix = self.method.observe(number, stored, self.stream.batch(stored, labels))
                if self.record is not None:
                    self.record.take(mix, number, position)

    def end(self, task):
        self.method.end_task(task, FinishedTask(self._examples))

    def numbers(self):
        """Return every tensor of numbers that was learned, to be read and written."""
        columns = getattr(self.method, "progressive", None)
        if columns is not None:
            return [*columns.columns, *columns.buffers]
        held = [getattr(self.method, name) for name in self.method.state]
        if getattr(self.method, "exemplars", None) is not None:
            held += self.method.exemplars.columns.values()
        return list(_floating(held))


def _floating(held):
    if isinstance(held, torch.Tensor) and held.is_floating_point():
        yield held
    elif isinstance(held, list | tuple):
        for part in held:
            yield from _floating(part)


@torch.no_grad()
def teach_in_step(ours, theirs, *, tolerance):
    """Teach all tasks to the same runs in two ways.

    In every step, and at every end of a task, the numbers of both move alike: apart by no more than
    the share ``tolerance`` of the largest move.
    """
    with precision("float32"):
        for task in range(ours.stream.tasks):
            _level(ours, theirs)
            steps, _ = ours.begin(task), theirs.begin(task)
            for step in range(steps):
                _move(ours, theirs, lambda each, step=step: each.take(step), tolerance)
            _move(ours, theirs, lambda each, task=task: each.end(task), tolerance)


def _level(ours, theirs):
    for mine, other in zip(ours.numbers(), theirs.numbers(), strict=True):
        other.copy_(mine)


def _move(ours, theirs, move, tolerance):
    _level(ours, theirs)
    before = [numbers.clone() for numbers in ours.numbers()]
    for each in (ours, theirs):
        move(each)
    for place, (mine, other) in enumerate(zip(ours.numbers(), theirs.numbers(), strict=True)):
        known = place < len(before) and before[place].shape == mine.shape
        moved = mine - before[place] if known else mine  # or new, at the end of a task
        if mine.numel():
            assert mine.isfinite().all()
            rounded = ROUNDING * torch.finfo(mine.dtype).eps * mine.abs()
            apart, most = ((mine - other).abs() - rounded).max(), moved.abs().max()
            assert apart <= tolerance * most, f"{apart} apart, of {most}"
