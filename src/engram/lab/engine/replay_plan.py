"""A task's plan: which examples its steps read from the memory, and which of its own stay.

Both are decided by labels alone, for the whole task when it begins, so that nothing is chosen
inside of the loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.lab.engine.cuda_graphs import unchecked
from engram.lab.plan import generator, subsets
from engram.memory import ClassRing, Ledger, Policy

Slots = NDArray[np.int64]
Described = NDArray[np.float32]  # [R, N, k]

_ROOM = 2**27  # numbers of the tables that are shuffled at once
_FEW = 2**15  # places that two bytes count
_NONE = np.empty(0, np.int64)


class ReplayPlan:
    """What every step of a task reads, as rows of the table that all runs share.

    Of each run's ``length`` rows the first ``capacity`` are its slots, and the task's examples lie
    behind. ``moves`` are the rows whose examples change when the task has ended, and those of the
    new ones. Shares of a mean are in ``dtype``, that of the losses. ``position``, where it is set,
    is the number of the current step on the device ([1]): steps that are captured once and replayed
    find their place by it.
    """

    position: Tensor | None = None

    def __init__(
        self,
        reads: Reads | None,
        kept: Slots,  # [R, N]: the slot that an example goes to, or -1
        capacity: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._reads = reads
        self.length = stride = capacity + kept.shape[1]
        if reads is not None:
            self._reads = reads._replace(slots=np.empty(0, np.int64))  # not held twice
            self._slots = _rows(reads.slots, stride, device)
            weights = reads.weights
            self._weights = (
                None if weights is None else torch.from_numpy(weights).to(dtype).to(device)
            )
        held = holders(kept, capacity)
        runs, slots = np.nonzero(held >= capacity)
        first = stride * runs
        self.moves = tuple(
            torch.from_numpy(first + rows).to(device) for rows in (slots, held[runs, slots])
        )

    @property
    def pads(self) -> bool:
        """Whether what is read has examples of weight 0."""
        return self._reads is not None and self._reads.weights is not None

    def kind(self, step: int) -> Hashable:
        """Return the kind of a step: steps of two kinds differ in more than their data."""
        return self._reads is not None and self._reads.anything(step)

    def reads(self, step: int) -> tuple[Tensor, Tensor | None, int] | None:
        """Return the reference batch's rows and weights, [R, B], and its number of groups."""
        if self._reads is None or not self._reads.anything(step):
            return None
        weights = None if self._weights is None else self._at(self._weights, step)
        return self._at(self._slots, step), weights, self._reads.groups

    def _at(self, planned: Tensor, step: int) -> Tensor:
        if planned.shape[1] == 1:
            return planned[:, 0]
        if self.position is None:
            return planned[:, step]
        return planned.index_select(1, self.position).squeeze(1)


def _rows(slots: Slots | Tensor, stride: int, device: torch.device) -> Tensor:
    """Turn the rows [R, ...] of each run into rows of the common table."""
    first = stride * torch.arange(len(slots), device=device)
    return torch.as_tensor(slots, device=device) + first.view(-1, *[1] * (slots.ndim - 1))


class Reads(NamedTuple):
    """The slots that R runs read at every step of a task; one step stands for all if S is 1.

    Numbers from the capacity on are those of examples of the current task. A run that reads fewer
    than the others is padded with the first of these, of weight 0.
    """

    slots: Slots | Tensor  # [R, S, B]
    weights: NDArray[np.float64] | None  # [R, S, B], or None where every part is full
    groups: int = 1  # parts of B, a row of gradients each

    def in_parts(self, count: int) -> Reads:
        """Return reads of which each step is ``count`` of these, a part for each."""
        runs, _, size = self.slots.shape
        weights = self.weights
        return Reads(
            self.slots.reshape(runs, -1, count * size),
            None if weights is None else weights.reshape(runs, -1, count * size),
            count,
        )

    def anything(self, step: int) -> bool:
        """Whether there is anything to read at that step."""
        return self.weights is None or bool(
            self.weights[:, min(step, len(self.weights[0]) - 1)].any()
        )


def read_pooled(
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


def read_by_task(ledgers: Sequence[Ledger], count: int, capacity: int) -> Reads | None:
    """Read the last ``count`` examples of each finished task, the same at every step."""
    held = [ledger.slots_by_task() for ledger in ledgers]
    parts = _padded([[slots[task][-count:] for task in held[0]] for slots in held], capacity)
    return None if parts is None else parts.in_parts(len(held[0]))


def draw_by_task(
    ledgers: Sequence[Ledger],
    seeds: Sequence[int],
    task: int,
    steps: int,
    count: int,
    capacity: int,
) -> Reads | None:
    """Draw, for each step, up to ``count`` examples of each finished task."""
    runs, past = [], [*ledgers[0].slots_by_task()]
    for ledger, seed in zip(ledgers, seeds, strict=True):
        source, held = generator(seed, "reference", task), ledger.slots_by_task()
        of_task = [held[each][subsets(source, steps, count, len(held[each]))] for each in past]
        runs.append([drawn[step] for step in range(steps) for drawn in of_task])
    parts = _padded(runs, capacity)
    return None if parts is None else parts.in_parts(len(past))


def read_growing(
    ledgers: Sequence[Ledger],
    seeds: Sequence[int],
    task: int,
    labels: NDArray[np.int64],
    batch_size: int,
    count: int,
    capacity: int,
    *,
    passes: int = 1,
    draws: int = 1,
    described: Described | None = None,
    per_task: bool = False,
    sampled: bool = False,
) -> tuple[Reads | None, Slots]:
    """Play a task through memories that take in every batch as soon as it has been learned.

    Of several passes the first fills them, and all of them read: a draw of everything or, with
    ``per_task``, up to ``count`` of what is left of each past task, the last ones or those that
    are ``sampled``, a part of the batch for each.

    Returns the reads, in which ``capacity`` + i is example i of the task, and the slot that each of
    its examples goes to after its batch's step (-1: not kept), [R, N]. ``labels`` is [R, N], and
    ``described`` [R, N, k] what a policy that looks at the examples says of each.
    """
    reads, kept = [], np.empty_like(labels)
    for run, (ledger, seed, mine, slots) in enumerate(
        zip(ledgers, seeds, labels, kept, strict=True)
    ):
        source = generator(seed, "reference", task)
        steps, held = [], np.arange(capacity)  # whose example is in each slot
        for start in range(0, passes * len(mine), batch_size):
            if per_task:
                own = ledger.slots_by_task()
                for each in range(task):
                    slots_of = own.get(each, _NONE)
                    if sampled and len(slots_of) > count:
                        slots_of = source.choice(slots_of, count, replace=False)
                    steps.append(held[slots_of[-count:]])
            else:
                steps += [held[ledger.draw(count, source)] for _ in range(draws)]
            part = slice(start, start + batch_size)
            if start >= len(mine):
                continue
            said = None if described is None else described[run, part]
            slots[part] = ledger.add(np.full(len(mine[part]), task), mine[part], described=said)
            fill_slots(held, slots[part], capacity + start)
        reads.append(steps)
    parts = _padded(reads, capacity)
    return (parts.in_parts(task) if per_task and parts is not None else parts), kept


def _padded(runs: Sequence[Sequence[Slots] | Slots], capacity: int) -> Reads | None:
    """Stack the runs' [S][B_rs], padding the shorter ones; None where there is nothing to read.

    Padding is the task's first example, which has a label: a slot may be empty.
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
    return Reads(slots, weights)


def shuffled(
    sources: Sequence[np.random.Generator], rows: int, count: int, size: int, device: torch.device
) -> Tensor:  # [R, rows, count]
    """Draw what `plan.subsets` draws from each source, for ``count`` below ``size``.

    The host draws the numbers, as there; the shuffling, which takes it ten times as long, is the
    device's.
    """
    left = torch.arange(size, size - count, -1, device=device)
    first = torch.arange(count, device=device)
    places = torch.empty(len(sources), rows, count, dtype=torch.int64, device=device)
    with ThreadPoolExecutor(len(sources)) as threads:
        drawn = threads.map(lambda source: source.random((rows, count)), sources)
        for mine, numbers in zip(places, drawn, strict=True):
            mine.copy_(torch.from_numpy(numbers).to(device).mul_(left)).add_(first)
    with unchecked():
        for part in torch.split(places.flatten(0, 1), _ROOM // size + 1):
            _shuffle(part, size)
    return places


def _shuffle(places: Tensor, size: int) -> None:
    """Put what a shuffle chooses, step by step, for the places that it exchanges, [rows, count]."""
    kind = torch.int16 if size <= _FEW else torch.int32
    table = torch.arange(size, dtype=kind, device=places.device).repeat(len(places), 1)
    for step in range(places.shape[1]):
        there, here = places[:, step, None], table[:, step, None].clone()
        chosen = table.gather(1, there)
        table.scatter_(1, there, here)  # a place in each row: there is no order to mind
        there.copy_(chosen)


def kept_slots(
    ledgers: Sequence[Ledger],
    task: int,
    labels: NDArray[np.int64],
    described: Described | None = None,
) -> Slots:
    """Return the slot that each example of a task, [R, N], keeps to its end (-1: none)."""
    slots = np.full_like(labels, -1)
    for run, (ledger, mine, places) in enumerate(zip(ledgers, labels, slots, strict=True)):
        offered = _lasting(mine, ledger.policy)
        said = None if described is None else described[run, offered]
        places[offered] = ledger.add(np.full(len(offered), task), mine[offered], described=said)
    return slots


def holders(kept: Slots, capacity: int) -> Slots:
    """Return whose example is in each slot when a task has ended, [R, capacity].

    ``kept`` [R, N] are the slots that its examples went to, one after the other (-1: none).
    Example i is ``capacity`` + i; a slot that none of them went to has its own number.
    """
    held = np.tile(np.arange(capacity), (len(kept), 1))
    for mine, slots in zip(held, kept, strict=True):
        fill_slots(mine, slots, capacity)
    return held


def fill_slots(held: Slots, slots: Slots, first: int) -> None:
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
