"""Which slots the reference batches of a task read, drawn for the whole task at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.engine._shuffled import shuffled
from engram.memory import ClassRing, Ledger, Policy
from engram.plan import generator, subsets

Slots = NDArray[np.int64]


class Reads(NamedTuple):
    """The slots that R runs read at every step of a task; one step stands for all if S is 1.

    A run that reads fewer than the others is padded with slots of weight 0. A number beyond the
    slots is that of an example of the task in hand.
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
    return _padded(drawn)


def by_task(ledgers: Sequence[Ledger], count: int) -> Reads | None:
    """Read the latest ``count`` examples of each finished task, the same at every step."""
    held = [ledger.slots_by_task() for ledger in ledgers]
    parts = _padded([[slots[task][-count:] for task in held[0]] for slots in held])
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
            _take_seats(held, slots[part], capacity + start)
        reads.append(steps)
    return _padded(reads), kept


def holders(kept: Slots, capacity: int) -> Slots:
    """Return whose example is in each slot when a task has ended, [R, capacity].

    ``kept`` [R, N] are the slots that its examples went to, one after the other (-1: none).
    Example i is ``capacity`` + i; a slot that none of them went to has its own number.
    """
    held = np.tile(np.arange(capacity), (len(kept), 1))
    for mine, slots in zip(held, kept, strict=True):
        _take_seats(mine, slots, capacity)
    return held


def _take_seats(held: Slots, slots: Slots, first: int) -> None:
    """Put examples ``first``, ``first`` + 1, ... into their slots (-1: none)."""
    some = np.flatnonzero(slots >= 0)
    held[slots[some]] = first + some  # of two that go to one slot, the last stays


def kept(ledgers: Sequence[Ledger], task: int, labels: NDArray[np.int64]) -> Slots:
    """Return the slot that each example of a task, [R, N], keeps to its end (-1: none)."""
    slots = np.full_like(labels, -1)
    for ledger, mine, places in zip(ledgers, labels, slots, strict=True):
        offered = _lasting(mine, ledger.policy)
        places[offered] = ledger.add(np.full(len(offered), task), mine[offered])
    return slots


def _lasting(labels: NDArray[np.int64], policy: Policy) -> Slots:
    """Return the numbers of the examples that a policy has to see, in order.

    A ring of K is as it was, but for who sits there, after every K that went through it: of a
    class, all but the first K and the last (fewer than 2 K) can be left out, K at a time.
    """
    if not isinstance(policy, ClassRing):
        return np.arange(len(labels))
    size, parts = policy.per_class, []
    for label in np.flatnonzero(np.bincount(labels)):
        mine = np.flatnonzero(labels == label)
        rounds = max(0, len(mine) // size - 2)
        parts += [mine[:size], mine[(1 + rounds) * size :]]
    return np.sort(np.concatenate(parts))


def _padded(runs: Sequence[Sequence[Slots] | Slots]) -> Reads | None:
    """Stack the runs' [S][B_rs], padding the shorter ones; None where there is nothing to read."""
    lengths = np.array([[len(step) for step in steps] for steps in runs])
    longest = int(lengths.max(initial=0))
    if longest == 0:
        return None
    slots = np.zeros((*lengths.shape, longest), dtype=np.int64)
    for run, steps in enumerate(runs):
        for step, part in enumerate(steps):
            slots[run, step, : len(part)] = part
    if (lengths == longest).all():
        return Reads(slots, None)
    inside = np.arange(longest) < lengths[..., np.newaxis]
    weights = inside / np.maximum(lengths, 1)[..., np.newaxis]
    return Reads(slots, weights.astype(np.float32))
