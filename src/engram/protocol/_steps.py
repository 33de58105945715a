"""The steps of one task."""

from __future__ import annotations

from torch import Tensor

from engram.engine import Recorded
from engram.methods import Method
from engram.protocol._records import StepRecord
from engram.streams import Examples, Stream


def task_steps(
    method: Method,
    stream: Stream,
    examples: Examples,
    batch_size: int,
    record: StepRecord | None = None,
) -> Recorded:
    """Return the steps that a method takes through a task's examples, to be noted in a record."""

    def observe(step: int, stored: Tensor, labels: Tensor, position: Tensor | None) -> None:
        method.locate(position)
        mix = method.observe(step, stored, stream.batch(stored, labels))
        if record is not None:
            record.take(mix, step, position)

    steps = Recorded(examples, batch_size, observe, record=method.capturable, kind=method.kind)
    if record is not None:
        method.rows.compare = True
        record.begin_task(len(steps), examples.labels.device)
    return steps
