"""One pass over T tasks, with the paper's measurements along the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from engram.engine import Recorded
from engram.methods import FinishedTask, Method, laid, method_entry
from engram.protocol._accuracy import accuracies, curve_point
from engram.protocol._checkpoint import Checkpoint
from engram.protocol._course import Course
from engram.protocol._record import Record
from engram.protocol._spec import Spec
from engram.protocol._steps import task_steps
from engram.protocol._tuning import repeated
from engram.protocol._watch import Watch
from engram.streams import Examples, Stream

_CURVE_BATCHES = 10  # the learning curve covers this many batches of each task
_PROGRESS_EVERY = 50  # steps


class Progress(NamedTuple):
    """How far a run has come; ``step`` counts over all tasks."""

    task: int
    tasks: int
    step: int
    steps: int


class Trainer:
    """The loop over tasks and batches.

    Between two steps, and between two tasks, it can be saved, and another one go on from there:
    its ``course`` is what is saved.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        method: Method,
        stream: Stream,
        record: Record,
        progress: Callable[[Progress], None] | None,
        checkpoint: Checkpoint | None,
        started: float,
    ) -> None:
        self.spec = spec = specs[0]  # what the others differ in is the method's alone
        self.method, self.stream, self.record = method, stream, record
        self.course = Course(spec, method, record, checkpoint, started)
        self._joint = method_entry(spec.method).joint
        self._batch_size = spec.method_settings().batch_size
        self._watch = Watch(specs, method, stream, record, checkpoint)
        self._progress, self._checkpoint = progress, checkpoint

    def train(self) -> None:
        """Learn every task that is left, up to where every run has diverged."""
        first, step = self.course.first
        for task in range(first, self.spec.tasks):
            if not self._learn(task, step):
                return
            step, last = 0, task == self.spec.tasks - 1
            if not self._joint or last:
                self._evaluate(task)
            if not last:
                self._boundary(task + 1, 0)

    def _learn(self, task: int, first: int) -> bool:
        """Take a task's steps from the ``first`` on, and end it, unless every run has diverged."""
        examples = self._serve(task)
        if first == 0:
            self.method.begin_task(task, examples.labels)
        steps = self._steps(examples)
        if first:
            steps.skip(first)
        self.course.rejoin()
        step = first
        while step < len(steps):
            self._measure_curve(task, step)
            before, step = step, steps.take(step, self._stop(step, len(steps)))
            self._tell(task, step - before, last=step == len(steps))
            if self._watch.alarm(before) and self._watch.all_diverged(task):
                return False
            if self._boundary(task, step):
                return False
        if self._watch.all_diverged(task, ended=True):
            return False
        self._measure_curve(task, len(steps))
        points = self.record.curves[task]
        points[:] = [point.cpu() for point in points]
        once = examples.labels.shape[1] // self.spec.passes  # the first pass has all as they come
        finished = FinishedTask(Examples(*(part[:, :once] for part in examples)))
        self.method.end_task(task, finished)
        self.course.reads += finished.reads
        return True

    def _serve(self, task: int) -> Examples:
        """Return a task's examples, in the order of its steps, where they are to lie."""
        serve = self.stream.train_jointly if self._joint else self.stream.train
        ordered = repeated(serve(task), self.spec.passes, self.stream.seeds, task)
        return laid(self.method, ordered)

    def _stop(self, step: int, length: int) -> int:
        """Return the step that no replay may pass: the next point of the curve, or the end."""
        return step + 1 if step < _CURVE_BATCHES and not self._joint else length

    def _steps(self, examples: Examples) -> Recorded:
        length = -(-examples.labels.shape[1] // self._batch_size)
        watched = self._watch.begin(length)
        return task_steps(watched, self.stream, examples, self._batch_size, self.record.steps)

    def _measure_curve(self, task: int, batches: int) -> None:
        if batches <= _CURVE_BATCHES and not self._joint:
            self.method.begin_evaluation()
            self.record.curves[task].append(curve_point(self.method, self.stream, task))

    def _evaluate(self, task: int) -> None:
        self.method.begin_evaluation()
        matrix = self.record.matrix
        settled = task if self.method.settled and not self._joint else 0
        matrix[:, task, :settled] = matrix[:, task - 1, :settled]
        measured = accuracies(self.method, self.stream, range(settled, task + 1))
        matrix[:, task, settled : task + 1] = measured.cpu()

    def _tell(self, task: int, steps: int, *, last: bool) -> None:
        before = self.course.done // _PROGRESS_EVERY
        self.course.done += steps
        if self._progress and (self.course.done // _PROGRESS_EVERY > before or last):
            self._progress(Progress(task, self.spec.tasks, self.course.done, self._all_steps))

    @cached_property
    def _all_steps(self) -> int:
        lengths = [self.stream.length(task) * self.spec.passes for task in range(self.spec.tasks)]
        return sum(-(-length // self._batch_size) for length in lengths)

    def _boundary(self, task: int, step: int) -> bool:
        """Save the run here if it is time; return whether every run has diverged instead.

        Of a run that has diverged the last good checkpoint stays.
        """
        if self._checkpoint is None or not self._checkpoint.due():
            return False
        if step and self._watch.all_diverged(task):
            return True
        self.course.save(task, step)
        return False
