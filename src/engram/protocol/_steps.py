"""The steps of one task."""

from __future__ import annotations

from torch import Tensor

from engram.engine import Recorded
from engram.methods import Method
from engram.streams import Examples, Stream


def task_steps(method: Method, stream: Stream, examples: Examples, batch_size: int) -> Recorded:
    """Return the steps that a method takes through a task's examples."""

    def observe(step: int, stored: Tensor, labels: Tensor, position: Tensor | None) -> None:
        method.locate(position)
        method.observe(step, stored, stream.batch(stored, labels))

    return Recorded(examples, batch_size, observe, record=method.capturable, kind=method.kind)
