"""What every stream of somebody's own data shares: the same tasks for every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from engram.data import ImageSet
from engram.errors import EngramError
from engram.streams._own_tasks import OwnSettings, OwnTasks
from engram.streams._split import Part, SplitStream
from engram.streams._stream import Examples, TestBatch

_TEST_ROWS = 500  # predicted at once


class OwnStream(SplitStream):
    """The same tasks in the same order for every run; a seed shuffles within them.

    With one head for all tasks ("shared") an output is a class, which keeps it when it returns,
    and the classes met so far compete. With heads "by-task" every task has outputs of its own, so
    a class that returns is learned afresh.
    """

    def __init__(
        self,
        own: OwnTasks,
        seeds: Sequence[int],
        tasks: int,
        examples: int,
        *,
        settings: OwnSettings,
        device: torch.device | str = "cpu",
    ) -> None:
        self._own, self._settings = own, settings
        self._by_task = settings.heads == "by-task"
        self._own_parts = _with_own_outputs(own) if self._by_task else list(own.parts)
        met = [np.unique(part.train_labels) for part in self._own_parts]
        self.classes = int(max(numbers[-1] for numbers in met)) + 1
        self.classes_per_task = max(map(len, met))
        first = np.full(self.classes, len(met))  # the task that a class is met in
        for task, numbers in reversed(list(enumerate(met))):
            first[numbers] = task
        self._first = torch.from_numpy(first).to(device)
        self._met: Tensor | None = None  # [classes], which classes were met; None: all
        super().__init__(own.examples, seeds, tasks, examples, tuning=False, device=device)

    def _cut(self, seed: int, images: ImageSet) -> list[Part]:  # noqa: ARG002
        return self._own_parts

    def _checked(self, parts: list[Part]) -> list[Part]:
        return parts[: self.tasks]  # of which one may have fewer classes than another

    def _training_examples(self, task: int) -> Examples:
        self._met = None if int(self._first.max()) <= task else self._first <= task
        return super()._training_examples(task)

    def outputs(self, labels: Tensor) -> Tensor | None:
        """Return the outputs of the classes met so far, or of each example's own task."""
        if self._by_task:
            return super().outputs(labels)
        return None if self._met is None else self._met.expand(*labels.shape, -1)

    def task_outputs(self, task: int) -> Tensor | None:  # type: ignore[override]
        """Return the outputs of the classes met so far, or of one task."""
        if self._by_task:
            return super().task_outputs(task)
        return None if self._met is None else self._met.expand(len(self.seeds), -1)

    def facts(self) -> dict[str, float]:
        """Return what a guess has: ``guess_percent``, the average accuracy of saying one class.

        It is the class that is the most frequent in the tests, all tasks counting alike; with
        heads by task, the most frequent of each task.
        """
        shares = np.array(
            [
                np.bincount(part.test_labels, minlength=self.classes) / len(part.test)
                for part in self._own_parts[: self.tasks]
            ]
        )  # [T, classes]
        guessed = shares.max(1).mean() if self._by_task else shares.mean(0).max()
        return {"guess_percent": 100 * float(guessed)}

    def _read_tests(self, task: int) -> Iterator[TestBatch]:
        part = self._own_parts[task]
        for start in range(0, len(part.test), _TEST_ROWS):
            rows = part.test[start : start + _TEST_ROWS]
            labels = torch.from_numpy(part.test_labels[start : start + _TEST_ROWS])
            inputs = torch.from_numpy(np.ascontiguousarray(self._images.test_images[rows]))
            yield TestBatch(inputs.to(self.device), labels.to(self.device))

    def normalise(self, inputs: Tensor) -> Tensor:
        """Take the inputs as they are."""
        return inputs.float()


def _with_own_outputs(own: OwnTasks) -> list[Part]:
    """Return the tasks with outputs of their own, numbered from task to task."""
    parts, start = list[Part](), 0
    for part, name in zip(own.parts, own.names, strict=True):
        classes = np.unique(part.train_labels)
        if len(classes) < 2:
            raise EngramError(
                f"heads must be shared where a task has a single class, as {name!r} has, "
                "not 'by-task': nothing would be left to tell apart."
            )
        train, test = (
            start + np.searchsorted(classes, labels)
            for labels in (part.train_labels, part.test_labels)
        )
        parts.append(Part(part.train, train, part.test, test))
        start += len(classes)
    return parts
