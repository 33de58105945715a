"""How many test examples are answered rightly, measured without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.lab.benchmarks import Stream, TestBatch
from engram.lab.methods import Method


def accuracies(method: Method, stream: Stream, tasks: Sequence[int]) -> Tensor:
    """Return each run's accuracy on the test examples of tasks, [R, tasks], on the device."""
    batches = stream.tests(tasks) if method.task_blind else Stream.tests(stream, tasks)
    return _measured(method, stream, batches, tasks)


def held_out_score(method: Method, stream: Stream, tasks: Sequence[int]) -> Tensor:
    """Return each run's mean accuracy on what is held out of tasks' training, [R]."""
    return _measured(method, stream, stream.held_out(tasks), tasks).mean(1)


def curve_point(method: Method, stream: Stream, task: int) -> Tensor:
    """Return each run's accuracy on what a learning curve is measured on, [R], on the device."""
    batches = stream.test(task, curve=True)
    counted = ((batch, {task: batch.labels.shape[-1]}) for batch in batches)
    return _measured(method, stream, counted, [task])[:, 0]


def _measured(
    method: Method,
    stream: Stream,
    batches: Iterable[tuple[TestBatch, Mapping[int, int]]],
    tasks: Sequence[int],
) -> Tensor:
    """Return each run's accuracy on tasks, [R, tasks] in float64, from batches of all of them."""
    if stream.target is not None:
        sums = statistics(method, stream, batches, tasks)
        return stream.target.score(sums)
    correct, totals = dict[int, Tensor](), dict[int, int]()
    for batch, parts in batches:
        first, *_ = parts
        logits, start = method.predict(batch.inputs, batch.columns, first), 0
        for task, count in parts.items():
            part = slice(start, start + count)
            start += count
            right = _right(stream, task, logits[:, part], batch.labels[..., part])
            shares = None if batch.weights is None else batch.weights[:, part]
            found = right.sum(-1) if shares is None else (right * shares).sum(-1)
            correct[task] = correct[task] + found if task in correct else found
            totals[task] = totals.get(task, 0) + count if shares is None else 1  # shares add up
    for task in tasks:
        if not totals.get(task):
            raise EngramError(f"task {task} must have test examples, not none.")
    measured = [correct[task].double() / totals[task] for task in tasks]
    return torch.stack(measured, 1).clamp(max=1)  # which a sum of shares may exceed by a rounding


def statistics(
    method: Method,
    stream: Stream,
    batches: Iterable[tuple[TestBatch, Mapping[int, int]]],
    tasks: Sequence[int],
) -> Tensor:
    """Return the sums of what a stream's target is measured by, [R, tasks, S] in float64."""
    assert stream.target is not None
    sums = dict[int, Tensor]()
    for batch, parts in batches:
        first, *_ = parts
        outputs, start = method.predict(batch.inputs, batch.columns, first), 0
        for task, count in parts.items():
            part = slice(start, start + count)
            start += count
            wanted = stream.targets(batch.labels[..., part]).expand_as(outputs[:, part])
            found = stream.target.statistics(outputs[:, part], wanted).sum(1)
            sums[task] = sums[task] + found if task in sums else found
    return torch.stack([sums[task] for task in tasks], 1)


def summaries(method: Method, stream: Stream) -> list[dict[str, float]]:
    """Return what else a stream's target has to say of each run at its end, over all tasks.

    By name, ``final_rmse`` say, as the mean over the tasks; nothing of classes.
    """
    target, runs = stream.target, range(len(stream.seeds))
    if target is None:
        return [{} for _ in runs]
    tasks = range(stream.tasks)
    sums = statistics(method, stream, Stream.tests(stream, tasks), tasks).cpu()
    every = [[target.summary(each) for each in sums[run]] for run in runs]
    return [
        {f"final_{name}": fmean(one[name] for one in mine) for name in mine[0]} for mine in every
    ]


def _right(stream: Stream, task: int, logits: Tensor, labels: Tensor) -> Tensor:
    """Return which examples of a task are answered rightly, [R, B]."""
    outputs = stream.task_outputs(task)
    if outputs is not None:
        logits = logits.masked_fill(~outputs.unsqueeze(1), -torch.inf)
    return logits.argmax(-1) == labels
