"""How many test examples are answered rightly, measured without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor

from engram.methods import Method
from engram.streams import Stream, TestBatch


def accuracies(method: Method, stream: Stream, tasks: Sequence[int]) -> Tensor:
    """Return each run's accuracy on the test examples of tasks, [R, tasks], on the device."""
    groups = [tasks] if method.task_blind else [[task] for task in tasks]
    return _measured(method, stream, chain.from_iterable(map(stream.tests, groups)))


def curve_point(method: Method, stream: Stream, task: int) -> Tensor:
    """Return each run's accuracy on what a learning curve is measured on, [R], on the device."""
    batches = stream.test(task, curve=True)
    told = ((batch, {task: batch.labels.shape[-1]}) for batch in batches)
    return _measured(method, stream, told)[:, 0]


def _measured(
    method: Method, stream: Stream, batches: Iterable[tuple[TestBatch, Mapping[int, int]]]
) -> Tensor:
    """Return each run's accuracy on the tasks of batches, in order, [R, tasks], float64."""
    correct, totals = dict[int, Tensor | int](), dict[int, int]()
    for batch, parts in batches:
        first, *_ = parts
        logits, start = method.predict(batch.inputs, batch.columns, first), 0
        for task, count in parts.items():
            part = slice(start, start + count)
            start += count
            right = _right(stream, task, logits[:, part], batch.labels[..., part])
            if batch.weights is not None:
                right, count = right * batch.weights[:, part], 0
            correct[task] = correct.get(task, 0) + right.sum(-1)
            totals[task] = totals.get(task, 0) + count
    shares = [torch.as_tensor(correct[task]).double() / (totals[task] or 1) for task in correct]
    return torch.stack(shares, 1).clamp(max=1)  # which a sum of weights may exceed by a rounding


def _right(stream: Stream, task: int, logits: Tensor, labels: Tensor) -> Tensor:
    """Return which examples of a task are answered rightly, [R, B]."""
    outputs = stream.task_outputs(task)
    if outputs is not None:
        logits = logits.masked_fill(~outputs.unsqueeze(1), -torch.inf)
    return logits.argmax(-1) == labels
