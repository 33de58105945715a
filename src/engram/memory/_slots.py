"""Who sits in which slot: a dense table that knows which rows a storage has to move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from engram.memory._example import Example, Id, Tags
from engram.memory._journal import Journal
from engram.memory._moves import Moves, Newcomer
from engram.memory._table import NONE, Indices, Table

Facts: TypeAlias = tuple[int, int, bool, bool, bool]
"""How many sit there, how many are sealed, and whether there are tasks, labels, numbers for ids."""


class Slots:
    """The columns of the table: slots 0..len-1 are taken, those below ``sealed`` for sampling.

    Between two calls of `settle` it keeps track of where every row comes from, so that any
    sequence of changes amounts to one set of moves followed by one set of writes. How to undo them
    is noted in the journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.sealed = 0
        self.has_tasks = self.has_labels = False  # of those held: all or none
        self.ids: list[Id] = []
        self.tags: list[Tags | None] = []
        self.slot_of: dict[Id, int] = {}
        # By slot: the tasks, the labels and, while all are numbers, the ids once more: what a
        # sample needs is read from an array much faster than from a list.
        self.table = Table()
        self.numeric = True
        self._start()

    def _start(self) -> None:
        self._previous = len(self.ids)
        self._vacated = False
        self._incoming: dict[int, int] = {}  # slot -> place in the batch of who sits there now
        self._origin: dict[int, int] = {}  # slot -> slot where its row was at the last `settle`

    @property
    def tasks(self) -> Indices:
        """The tasks by slot, `NONE` where there is none."""
        return self.table.array[0, : len(self.ids)]

    @property
    def labels(self) -> Indices:
        """The labels by slot, `NONE` where there is none."""
        return self.table.array[1, : len(self.ids)]

    def expect(self, ids: Iterable[Id]) -> None:
        """Get ready for ids, which need not be numbers of 64 bits where the user gave some."""
        if self.numeric:
            self.numeric = all(type(id) is int and -NONE > id >= NONE for id in ids)

    def expect_up_to(self, number: int) -> None:
        """Get ready for ids up to a number; behind one that was given they may need 65 bits."""
        if number >= -NONE:
            self.numeric = False

    def key(self, slot: int) -> tuple[int, int]:
        """Return the task and the label of who sits in a slot, `NONE` where there is none."""
        return self.table.tasks[slot], self.table.labels[slot]

    def example(self, slot: int) -> Example:
        """Return who sits in a slot."""
        task, label = self.key(slot)
        return Example(
            self.ids[slot],
            None if task == NONE else task,
            None if label == NONE else label,
            self.tags[slot],
        )

    def append(self, newcomer: Newcomer) -> None:
        """Seat a newcomer in a slot of its own."""
        _, id, task, label, tags = newcomer
        slot = len(self.ids)
        if not slot:
            self.has_tasks, self.has_labels = task != NONE, label != NONE
        if slot == len(self.table):
            self.table.double()
        self.ids.append(id)
        self.tags.append(tags)
        self.slot_of[id] = slot
        self.replace(slot, newcomer)

    def replace(self, slot: int, newcomer: Newcomer) -> None:
        """Seat a newcomer in a slot that another one leaves."""
        place, id, task, label, tags = newcomer
        ids, slot_of, all_tags = self.ids, self.slot_of, self.tags
        table = self.table
        tasks, labels = table.tasks, table.labels
        leaving = ids[slot]
        # As `_note` does, written out: this is where most of them are.
        self._journal.append(
            (_reseat, self, slot, leaving, all_tags[slot], tasks[slot], labels[slot])
        )
        del slot_of[leaving]
        slot_of[id] = slot
        ids[slot] = id
        all_tags[slot] = tags
        tasks[slot] = task
        labels[slot] = label
        if self.numeric:
            table.numbers[slot] = id  # type: ignore[assignment]
        self._incoming[slot] = place  # a row that was to move here is overwritten by the write

    def remove(self, slot: int) -> None:
        """Empty a slot; the last sealed row and the last row of all move up, so none is missing."""
        del self.slot_of[self.ids[slot]]
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
        self.table.array[:, target] = self.table.array[:, source]
        self._incoming.pop(target, None)
        self._origin.pop(target, None)
        place = self._incoming.pop(source, None)
        if place is None:
            self._origin[target] = self._origin.pop(source, source)
        else:
            self._incoming[target] = place

    def settle(self, count: int) -> tuple[list[int], Moves | None]:
        """Return the slots of a batch of ``count`` (-1: not held), and the moves that go first."""
        slots = [-1] * count
        for slot, place in self._incoming.items():
            slots[place] = slot
        moves = None
        if self._vacated:
            moved = [(source, slot) for slot, source in self._origin.items() if source != slot]
            pairs = np.array(moved, np.int64).reshape(-1, 2)
            moves = Moves(pairs[:, 0], pairs[:, 1], len(self.ids), self._previous)
        self._start()
        return slots, moves

    def _note(self, slot: int) -> None:
        """Note who sits in a slot."""
        table = self.table
        who = self.ids[slot], self.tags[slot], table.tasks[slot], table.labels[slot]
        self._journal.append((_reseat, self, slot, *who))

    def facts(self) -> Facts:
        """Return what `restore` is to be told when a change is undone."""
        return len(self.ids), self.sealed, self.has_tasks, self.has_labels, self.numeric

    def restore(self, facts: Facts) -> None:
        """Undo the rest when everybody sits where they did: who came, and what is counted."""
        length, self.sealed, self.has_tasks, self.has_labels, self.numeric = facts
        del self.ids[length:], self.tags[length:]
        self.slot_of = {id: slot for slot, id in enumerate(self.ids)}
        if self.numeric:
            self.table.array[2, :length] = self.ids
        self._start()


def _reseat(slots: Slots, slot: int, id: Id, tags: Tags | None, task: int, label: int) -> None:
    """Undo what made somebody leave a slot, which may be gone."""
    for column in (slots.ids, slots.tags):
        column.extend([None] * (slot + 1 - len(column)))  # type: ignore[list-item]
    slots.ids[slot], slots.tags[slot] = id, tags
    slots.table.tasks[slot], slots.table.labels[slot] = task, label
