"""Passes over a finished task's data, for methods that measure when a task ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from engram.engine import Batch
from engram.streams import Examples


def batches(
    examples: Examples, normalise: Callable[[Tensor], Tensor], size: int
) -> Iterator[Batch]:
    """Yield the task in the order it was seen, in batches of ``size``."""
    for start in range(0, examples.labels.shape[1], size):
        part = slice(start, start + size)
        yield Batch(normalise(examples.inputs[:, part]), examples.labels[:, part])
