"""Test examples of several tasks in one batch, so that a GPU is kept busy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch

from engram.streams._stream import TestBatch


def together(
    tasks: Sequence[int], batches_of: Callable[[int], Iterable[TestBatch]], most: int
) -> Iterator[tuple[TestBatch, Mapping[int, int]]]:
    """Yield up to ``most`` examples at once, or a whole task, and how many of each task they are.

    Examples have no columns; those of a task stay together.
    """
    held, parts = list[TestBatch](), dict[int, int]()
    for task in tasks:
        mine = list(batches_of(task))
        count = sum(batch.labels.shape[-1] for batch in mine)
        if held and sum(parts.values()) + count > most:
            yield _joined(held), parts
            held, parts = [], {}
        held, parts = held + mine, parts | {task: count}
    if held:
        yield _joined(held), parts


def _joined(batches: Sequence[TestBatch]) -> TestBatch:
    axis = batches[0].labels.ndim - 1  # there may be an axis of runs before it
    inputs = torch.cat([batch.inputs for batch in batches], axis)
    labels = torch.cat([batch.labels for batch in batches], axis)
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return TestBatch(inputs, labels, weights=torch.cat(weights, 1) if weights else None)
