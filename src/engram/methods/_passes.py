"""Passes over a finished task's data, for methods that measure when a task ends."""

from __future__ import annotations

from collections.abc import Callable

from engram.engine import Batch, CudaGraphLoop
from engram.streams import Examples, Stream


def sweep(examples: Examples, stream: Stream, size: int, measure: Callable[[Batch], None]) -> None:
    """Measure the task in the order it was seen, in batches of ``size``.

    ``measure`` reads nothing back to the host: on a GPU it is captured and replayed.
    """
    loop = CudaGraphLoop(examples, size, capture=True)
    while loop.step < len(loop):
        with loop.advance(len(loop)) as steps:
            for _, stored, labels, _ in steps:
                measure(stream.batch(stored, labels))
