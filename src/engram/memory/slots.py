"""Which example is in which slot, and which rows a storage has to move when that changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engram.memory.examples import NONE, Example, Id, Tags
from engram.memory.journal import Journal

Indices: TypeAlias = NDArray[np.int64]

Candidate: TypeAlias = tuple[int, Id, int, int, Tags | None, float]
"""An example that may be kept: its position in the batch, id, task, label, tags and chance.

The chance is a uniform draw from [0, 1).
"""

Measures: TypeAlias = NDArray[np.float64]
"""What else is measured of examples, `MEASURES` [3, n]."""

MEASURES = ("weights", "times", "sizes")
"""An example's weight, when it was, and its bytes where they are its own."""
WITHOUT = (1.0, math.nan, 0.0)
"""What stands there for an example that was given none."""

Counts: TypeAlias = tuple[int, int, bool, bool, bool, frozenset[str]]
"""How many are held and sealed; if there are tasks, labels, numbers for ids; which measures."""


class Moves(NamedTuple):
    """Rows that change their slot, for a storage to follow.

    Read the rows ``source``, write them to ``target``, then clear the rows from ``length`` (what
    is held now) to ``previous`` (what was held before).

    >>> import numpy as np
    >>> Moves(source=np.array([9]), target=np.array([4]), length=9, previous=10).length
    9
    """

    source: Indices
    target: Indices
    length: int
    previous: int


class SlotTable:
    """The examples by slot: 0..len-1 are taken, and those below ``sealed`` may be sampled.

    Between two calls of `settle` it keeps track of where every row comes from, so that any
    sequence of changes amounts to one set of moves followed by one set of writes. How to undo them
    is noted in the journal: what was in a slot that is given to another example. Examples that were
    added need no note, for they are behind those that were there.
    """

    measured: frozenset[str] = frozenset()
    """Which of the `MEASURES` examples were given; while it is none there are no columns."""
    nbytes = 0
    """The sizes of all that are held."""
    _coming: Measures | None = None

    def __init__(self, journal: Journal) -> None:
        self.sealed = 0
        self.has_tasks = self.has_labels = False  # of those held: all or none
        self.ids: list[Id] = []
        self.tags: list[Tags | None] = []
        self.slot_of: dict[Id, int] = {}
        # By slot: the tasks, the labels and, while all are numbers, the ids once more: what a
        # sample needs is read from an array much faster than from a list.
        self.columns = SlotColumns()
        self.numeric = True
        self._journal = journal
        self._start()

    def _start(self) -> None:
        self._previous = len(self.ids)
        self._vacated = False
        self._incoming: dict[int, int] = {}  # slot -> position in the batch of what is there now
        self._origin: dict[int, int] = {}  # slot -> slot where its row was at the last `settle`

    @property
    def tasks(self) -> Indices:
        """The tasks by slot, `NONE` where there is none."""
        return self.columns.array[0, : len(self.ids)]

    @property
    def labels(self) -> Indices:
        """The labels by slot, `NONE` where there is none."""
        return self.columns.array[1, : len(self.ids)]

    def key(self, slot: int) -> tuple[int, int]:
        """Return the task and the label of a slot, `NONE` where there is none."""
        return self.columns.tasks[slot], self.columns.labels[slot]

    def example(self, slot: int) -> Example:
        """Return the example in a slot."""
        task, label = self.key(slot)
        weight = time = None
        if self.columns.measures is not None:
            own = dict(zip(MEASURES, self.columns.measures[:, slot].tolist(), strict=True))
            weight = own["weights"] if "weights" in self.measured else None
            time = None if math.isnan(own["times"]) else own["times"]
        return Example(
            self.ids[slot],
            None if task == NONE else task,
            None if label == NONE else label,
            copied(self.tags[slot]),
            weight,
            time,
        )

    def measure(self, name: str) -> Measures | None:
        """Return one of the `MEASURES` by slot; None where no example was given it."""
        if name not in self.measured:
            return None
        measures = self.columns.measures
        assert measures is not None
        return measures[MEASURES.index(name), : len(self.ids)]

    def measured_columns(self) -> dict[str, Measures]:
        """Return those of the `MEASURES` that examples were given, by slot."""
        found = {name: self.measure(name) for name in MEASURES}
        return {name: column for name, column in found.items() if column is not None}

    def expect_measures(self, coming: Mapping[str, Sequence[float]], count: int) -> None:
        """Get ready for the measures of a batch, where it or what is held has any."""
        if not coming and not self.measured:
            return
        if self.columns.measures is None:
            self.columns.measure()
        self._coming = np.repeat(np.array(WITHOUT)[:, None], count, axis=1)
        for name, values in coming.items():
            self._coming[MEASURES.index(name)] = values
        self.measured |= coming.keys()

    def expect(self, ids: Iterable[Id]) -> None:
        """Get ready for ids, which need not be numbers of 64 bits where the user gave some."""
        if self.numeric:
            self.numeric = all(type(id) is int and -NONE > id >= NONE for id in ids)

    def expect_up_to(self, number: int) -> None:
        """Get ready for ids up to a number; behind one that was given they may need 65 bits."""
        if number >= -NONE:
            self.numeric = False

    def append(self, candidate: Candidate) -> None:
        """Give an example a slot of its own."""
        position, id, task, label, tags, _ = candidate
        slot, columns = len(self.ids), self.columns
        if not slot:
            self.has_tasks, self.has_labels = task != NONE, label != NONE
        if slot == len(columns):
            columns.double()
        self.ids.append(id)
        self.tags.append(tags)
        self.slot_of[id] = slot
        columns.tasks[slot] = task
        columns.labels[slot] = label
        if self.numeric:
            columns.numbers[slot] = id  # type: ignore[assignment]
        self._incoming[slot] = position
        if self._coming is not None:
            self._measure(slot, position)

    def replace(self, slot: int, candidate: Candidate) -> None:
        """Give an example the slot of another one, which leaves."""
        position, id, task, label, tags, _ = candidate
        ids, all_tags, columns = self.ids, self.tags, self.columns
        tasks, labels = columns.tasks, columns.labels
        leaving = ids[slot]
        # As `_note` does, written out: this is where most of them are.
        measures = None if columns.measures is None else self._let_go(slot)
        self._journal.append(
            (
                _restore_slot,
                self,
                slot,
                leaving,
                all_tags[slot],
                tasks[slot],
                labels[slot],
                measures,
            )
        )
        del self.slot_of[leaving]
        self.slot_of[id] = slot
        ids[slot] = id
        all_tags[slot] = tags
        tasks[slot] = task
        labels[slot] = label
        if self.numeric:
            columns.numbers[slot] = id  # type: ignore[assignment]
        self._incoming[slot] = position  # a row that was to move here is overwritten by the write
        if self._coming is not None:
            self._measure(slot, position)

    def _measure(self, slot: int, position: int) -> None:
        """Enter the measures of an example of the batch."""
        assert self._coming is not None
        assert self.columns.measures is not None
        self.columns.measures[:, slot] = self._coming[:, position]
        self.nbytes += int(self._coming[2, position])

    def _let_go(self, slot: int) -> Measures:
        """Return the measures of an example that leaves its slot, which count no longer."""
        assert self.columns.measures is not None
        own = self.columns.measures[:, slot].copy()
        self.nbytes -= int(own[2])
        return own

    def remove(self, slot: int) -> None:
        """Empty a slot; the last sealed row and the last row of all move up, so none is missing."""
        del self.slot_of[self.ids[slot]]
        if self.columns.measures is not None:
            self._let_go(slot)
        if slot < self.sealed:
            self.sealed -= 1
            self._relocate(self.sealed, slot)
            slot = self.sealed
        last = len(self.ids) - 1
        self._note(last)
        self._relocate(last, slot)
        self.ids.pop()
        self.tags.pop()
        self._incoming.pop(last, None)
        self._origin.pop(last, None)
        self._vacated = True

    def _relocate(self, source: int, target: int) -> None:
        if source == target:
            return
        self._note(target)
        self.ids[target] = self.ids[source]
        self.tags[target] = self.tags[source]
        self.slot_of[self.ids[source]] = target
        self.columns.array[:, target] = self.columns.array[:, source]
        if self.columns.measures is not None:
            self.columns.measures[:, target] = self.columns.measures[:, source]
        self._incoming.pop(target, None)
        self._origin.pop(target, None)
        position = self._incoming.pop(source, None)
        if position is None:
            self._origin[target] = self._origin.pop(source, source)
        else:
            self._incoming[target] = position

    def settle(self, count: int) -> tuple[list[int], Moves | None]:
        """Return the slots of a batch of ``count`` (-1: not held), and the moves that go first."""
        slots = [-1] * count
        for slot, position in self._incoming.items():
            slots[position] = slot
        moves = None
        if self._vacated:
            moved = [(source, slot) for slot, source in self._origin.items() if source != slot]
            pairs = np.array(moved, np.int64).reshape(-1, 2)
            moves = Moves(pairs[:, 0], pairs[:, 1], len(self.ids), self._previous)
        self._start()
        self._coming = None
        return slots, moves

    def _note(self, slot: int) -> None:
        """Note in the journal what is in a slot."""
        measures = self.columns.measures
        own = None if measures is None else measures[:, slot].copy()
        contents = self.ids[slot], self.tags[slot], *self.key(slot), own
        self._journal.append((_restore_slot, self, slot, *contents))

    def restore(self, counts: Counts) -> None:
        """Undo the rest when the journal has restored the slots: what was added or was to move."""
        length, self.sealed, self.has_tasks, self.has_labels, self.numeric, self.measured = counts
        del self.ids[length:], self.tags[length:]
        self.slot_of = {id: slot for slot, id in enumerate(self.ids)}
        if self.numeric:
            self.columns.array[2, :length] = self.ids
        if not self.measured:
            self.columns.measures = None
        sizes = self.measure("sizes")
        self.nbytes = 0 if sizes is None else int(sizes.sum())
        self._coming = None
        self._start()


def _restore_slot(
    slots: SlotTable,
    slot: int,
    id: Id,
    tags: Tags | None,
    task: int,
    label: int,
    measures: Measures | None,
) -> None:
    """Undo what took an example out of a slot, which may be gone."""
    for column in (slots.ids, slots.tags):
        column.extend([None] * (slot + 1 - len(column)))  # type: ignore[list-item]
    slots.ids[slot], slots.tags[slot] = id, tags
    slots.columns.tasks[slot], slots.columns.labels[slot] = task, label
    if measures is not None and slots.columns.measures is not None:
        slots.columns.measures[:, slot] = measures


def copied(tags: Tags | None) -> Tags | None:
    """Return tags that a caller may change without changing the memory's."""
    return None if tags is None else dict(tags)


class SlotColumns:
    """The tasks, the labels and the ids that are numbers by slot: an array [3, rows].

    Beside it, where examples have any, are their `MEASURES`: floats [3, rows].

    Its rows are also memoryviews, which are read and written one number at a time in half the time
    of an array. Whatever needs many numbers at once, as a sample does, reads the array.
    """

    tasks: memoryview[int]
    labels: memoryview[int]
    numbers: memoryview[int]
    measures: Measures | None = None

    def __init__(self) -> None:
        self._use(np.empty((3, 16), np.int64))

    def __len__(self) -> int:
        return len(self.tasks)

    def double(self) -> None:
        """Make room for twice as many slots; the array is another one then."""
        measures = self.measures
        if measures is not None:  # first: more room than needed harms nobody
            self.measures = np.concatenate([measures, np.empty_like(measures)], axis=1)
        self._use(np.concatenate([self.array, np.empty_like(self.array)], axis=1))

    def measure(self) -> None:
        """Make columns of measures: so far no example was given any."""
        self.measures = np.repeat(np.array(WITHOUT)[:, None], len(self), axis=1)

    def _use(self, array: Indices) -> None:
        # Together, so that an interruption never leaves columns of another array.
        columns = [memoryview(column) for column in array]
        self.array, (self.tasks, self.labels, self.numbers) = array, columns

    def __getstate__(self) -> dict[str, Any]:
        """Leave the views out: those of a copy are of its own array."""
        own = {"array": self.array}
        return own if self.measures is None else {**own, "measures": self.measures}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._use(state["array"])
        self.measures = state.get("measures")
