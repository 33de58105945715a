"""Test examples of several tasks in one batch, so that a GPU is kept busy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch

from engram.streams._stream import TestBatch


def together(
    tasks: Sequence[int], batches_of: Callable[[int], Iterable[TestBatch]], most: int
) -> Iterator[tuple[TestBatch, Mapping[int, int]]]:
    """Join the tasks' batches to such of up to ``most`` examples, and tell how many each task has.

    One that is larger stays as it is. Examples have no columns.
    """
    held, parts = list[TestBatch](), dict[int, int]()
    for task in tasks:
        for batch in batches_of(task):
            count = batch.labels.shape[-1]
            if held and sum(parts.values()) + count > most:
                yield _joined(held), parts
                held, parts = [], {}
            held.append(batch)
            parts[task] = parts.get(task, 0) + count
    if held:
        yield _joined(held), parts


def _joined(batches: Sequence[TestBatch]) -> TestBatch:
    if len(batches) == 1:
        return batches[0]
    axis = batches[0].labels.ndim - 1  # there may be an axis of runs before it
    inputs = torch.cat([batch.inputs for batch in batches], axis)
    labels = torch.cat([batch.labels for batch in batches], axis)
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return TestBatch(inputs, labels, weights=torch.cat(weights, 1) if weights else None)
