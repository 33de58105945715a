"""Changes of who sits in which slot, and which rows a storage has to move for them."""

from __future__ import annotations

import numpy as np

from engram.memory._example import Id, Tags
from engram.memory._journal import Journal
from engram.memory._moves import Moves, Newcomer
from engram.memory._seats import Facts, Seats
from engram.memory._table import NONE


class Slots(Seats):
    """The seats, and how they are taken, left and changed.

    Between two calls of `settle` it keeps track of where every row comes from, so that any
    sequence of changes amounts to one set of moves followed by one set of writes. How to undo them
    is noted in the journal: who left a slot, for who came is behind those who were there.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        self._start()

    def _start(self) -> None:
        self._previous = len(self.ids)
        self._vacated = False
        self._incoming: dict[int, int] = {}  # slot -> place in the batch of who sits there now
        self._origin: dict[int, int] = {}  # slot -> slot where its row was at the last `settle`

    def append(self, newcomer: Newcomer) -> None:
        """Seat a newcomer in a slot of its own."""
        place, id, task, label, tags, _ = newcomer
        slot, table = len(self.ids), self.table
        if not slot:
            self.has_tasks, self.has_labels = task != NONE, label != NONE
        if slot == len(table):
            table.double()
        self.ids.append(id)
        self.tags.append(tags)
        self.slot_of[id] = slot
        table.tasks[slot] = task
        table.labels[slot] = label
        if self.numeric:
            table.numbers[slot] = id  # type: ignore[assignment]
        self._incoming[slot] = place

    def replace(self, slot: int, newcomer: Newcomer) -> None:
        """Seat a newcomer in a slot that another one leaves."""
        place, id, task, label, tags, _ = newcomer
        ids, all_tags, table = self.ids, self.tags, self.table
        tasks, labels = table.tasks, table.labels
        leaving = ids[slot]
        # As `_note` does, written out: this is where most of them are.
        self._journal.append(
            (_reseat, self, slot, leaving, all_tags[slot], tasks[slot], labels[slot])
        )
        del self.slot_of[leaving]
        self.slot_of[id] = slot
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
        who = self.ids[slot], self.tags[slot], *self.key(slot)
        self._journal.append((_reseat, self, slot, *who))

    def restore(self, facts: Facts) -> None:
        """Undo the rest when everybody sits where they did: who came, and what was to move."""
        super().restore(facts)
        self._start()


def _reseat(slots: Slots, slot: int, id: Id, tags: Tags | None, task: int, label: int) -> None:
    """Undo what made somebody leave a slot, which may be gone."""
    for column in (slots.ids, slots.tags):
        column.extend([None] * (slot + 1 - len(column)))  # type: ignore[list-item]
    slots.ids[slot], slots.tags[slot] = id, tags
    slots.table.tasks[slot], slots.table.labels[slot] = task, label
