"""Which examples of a task stay in the memory, and in which of its slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engram.memory import ClassRing, Ledger, Policy

Slots = NDArray[np.int64]


def kept(ledgers: Sequence[Ledger], task: int, labels: NDArray[np.int64]) -> Slots:
    """Return the slot that each example of a task, [R, N], keeps to its end (-1: none)."""
    slots = np.full_like(labels, -1)
    for ledger, mine, places in zip(ledgers, labels, slots, strict=True):
        offered = _lasting(mine, ledger.policy)
        places[offered] = ledger.add(np.full(len(offered), task), mine[offered])
    return slots


def holders(kept: Slots, capacity: int) -> Slots:
    """Return whose example is in each slot when a task has ended, [R, capacity].

    ``kept`` [R, N] are the slots that its examples went to, one after the other (-1: none).
    Example i is ``capacity`` + i; a slot that none of them went to has its own number.
    """
    held = np.tile(np.arange(capacity), (len(kept), 1))
    for mine, slots in zip(held, kept, strict=True):
        take_seats(mine, slots, capacity)
    return held


def take_seats(held: Slots, slots: Slots, first: int) -> None:
    """Put examples ``first``, ``first`` + 1, ... into their slots (-1: none)."""
    some = np.flatnonzero(slots >= 0)
    held[slots[some]] = first + some  # of two that go to one slot, the last stays


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
