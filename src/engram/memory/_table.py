"""Numbers by slot: the tasks, the labels and the ids that are numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

NONE = int(np.iinfo(np.int64).min)
"""Stands in the arrays of tasks and labels where an example has none."""

Indices: TypeAlias = NDArray[np.int64]


class Table:
    """An array [3, rows], and its columns as they are read and written one number at a time.

    For that a memoryview takes half the time of an array. Whatever needs many numbers at once, as
    a sample does, reads the array.
    """

    tasks: memoryview[int]
    labels: memoryview[int]
    numbers: memoryview[int]

    def __init__(self) -> None:
        self._take(np.empty((3, 16), np.int64))

    def __len__(self) -> int:
        return len(self.tasks)

    def double(self) -> None:
        """Make room for twice as many slots; the array is another one then."""
        self._take(np.concatenate([self.array, np.empty_like(self.array)], axis=1))

    def _take(self, array: Indices) -> None:
        # Together, so that an interruption never leaves columns of another array.
        columns = [memoryview(column) for column in array]
        self.array, (self.tasks, self.labels, self.numbers) = array, columns

    def __getstate__(self) -> dict[str, Any]:
        """Leave the columns behind: those of a copy are of its own array."""
        return {"array": self.array}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._take(state["array"])
