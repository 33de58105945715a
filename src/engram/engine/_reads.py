"""Which slots the reference batches of a task read, drawn for the whole task at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.engine._kept import Slots, take_seats
from engram.engine._shuffled import shuffled
from engram.memory import Ledger
from engram.plan import generator, subsets


class Reads(NamedTuple):
    """The slots that R runs read at every step of a task; one step stands for all if S is 1.

    Numbers from the capacity on are those of examples of the task in hand. A run that reads fewer
    than the others is padded with the first of these, of weight 0.
    """

    slots: Slots | Tensor  # [R, S, B]
    weights: NDArray[np.float32] | None  # [R, S, B], or None where every part is full
    groups: int = 1  # parts of B, a row of gradients each

    def anything(self, step: int) -> bool:
        """Whether there is anything to read at that step."""
        return self.weights is None or bool(
            self.weights[:, min(step, len(self.weights[0]) - 1)].any()
        )


def pooled(
    ledgers: Sequence[Ledger],
    seeds: Sequence[int],
    task: int,
    steps: int,
    count: int,
    capacity: int,
    device: torch.device,
) -> Reads | None:
    """Draw, for each step, ``count`` of all available examples, without replacement."""
    sources = [generator(seed, "reference", task) for seed in seeds]
    sizes = [ledger.available for ledger in ledgers]
    if device.type == "cuda" and len(set(sizes)) == 1 and count < sizes[0]:
        return Reads(shuffled(sources, steps, count, sizes[0], device), None)
    drawn = [
        subsets(source, steps, count, size) for source, size in zip(sources, sizes, strict=True)
    ]
    if len({slots.shape for slots in drawn}) == 1 and drawn[0].size:
        return Reads(np.stack(drawn), None)
    return _padded(drawn, capacity)


def by_task(ledgers: Sequence[Ledger], count: int, capacity: int) -> Reads | None:
    """Read the latest ``count`` examples of each finished task, the same at every step."""
    held = [ledger.slots_by_task() for ledger in ledgers]
    read = [[slots[task][-count:] for task in held[0]] for slots in held]
    parts = _padded(read, capacity)
    if parts is None:
        return None
    runs, groups, _ = parts.slots.shape
    weights = None if parts.weights is None else parts.weights.reshape(runs, 1, -1)
    return Reads(parts.slots.reshape(runs, 1, -1), weights, groups)


def growing(
    ledgers: Sequence[Ledger],
    seeds: Sequence[int],
    task: int,
    labels: NDArray[np.int64],
    batch_size: int,
    count: int,
    capacity: int,
) -> tuple[Reads | None, Slots]:
    """Play a task through memories that take in every batch as soon as it has been learned.

    Returns the reads, in which ``capacity`` + i is example i of the task, and the slot that each of
    its examples goes to after its batch's step (-1: not kept), [R, N]. ``labels`` is [R, N].
    """
    reads, kept = [], np.empty_like(labels)
    for ledger, seed, mine, slots in zip(ledgers, seeds, labels, kept, strict=True):
        source = generator(seed, "reference", task)
        steps, held = [], np.arange(capacity)  # whose example is in each slot
        for start in range(0, len(mine), batch_size):
            steps.append(held[ledger.draw(count, source)])
            part = slice(start, start + batch_size)
            slots[part] = ledger.add(np.full(len(mine[part]), task), mine[part])
            take_seats(held, slots[part], capacity + start)
        reads.append(steps)
    return _padded(reads, capacity), kept


def _padded(runs: Sequence[Sequence[Slots] | Slots], capacity: int) -> Reads | None:
    """Stack the runs' [S][B_rs], padding the shorter ones; None where there is nothing to read.

    Padding is the task's first example, which has a label that can be told: a slot may be empty.
    """
    lengths = np.array([[len(step) for step in steps] for steps in runs])
    longest = int(lengths.max(initial=0))
    if longest == 0:
        return None
    slots = np.full((*lengths.shape, longest), capacity, dtype=np.int64)
    for run, steps in enumerate(runs):
        for step, part in enumerate(steps):
            slots[run, step, : len(part)] = part
    if (lengths == longest).all():
        return Reads(slots, None)
    inside = np.arange(longest) < lengths[..., np.newaxis]
    weights = inside / np.maximum(lengths, 1)[..., np.newaxis]
    return Reads(slots, weights.astype(np.float32))
