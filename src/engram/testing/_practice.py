"""A stream small enough to be taught many times over, with the corners that real ones have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.models import MLP
from engram.plan import generator
from engram.streams import Examples, Stream

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

    def _training_examples(self, task: int) -> NoReturn:
        raise AssertionError(
            f"asks the stream for the training examples of task {task}: a method is shown each "
            "example once, and finds a finished task in FinishedTask alone."
        )

    def _joint_examples(self, part: int) -> NoReturn:
        self._training_examples(part)

    def _draw(self, seed: int, task: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        source = generator(seed, "practice", task)
        centres = source.integers(40, 216, (self.classes, self.features))
        labels = source.integers(0, self.classes, _LENGTHS[task])
        if task == _ONE_CLASS:
            labels[:] = labels[0]
        noise = source.integers(-40, 40, (_LENGTHS[task], self.features))
        return (centres[labels] + noise).astype(np.uint8), labels
