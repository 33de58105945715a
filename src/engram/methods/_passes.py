"""Passes over a finished task's data, for methods that measure when a task ends."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from engram.engine import Batch, Recorded
from engram.streams import Examples, Stream


def sweep(examples: Examples, stream: Stream, size: int, measure: Callable[[Batch], None]) -> None:
    """Measure the task in the order it was seen, in batches of ``size``.

    ``measure`` reads nothing back to the host: on a GPU it is recorded and replayed.
    """

    def visit(step: int, stored: Tensor, labels: Tensor, position: Tensor | None) -> None:  # noqa: ARG001
        measure(stream.batch(stored, labels))

    Recorded(examples, size, visit, record=True).take_all()
