"""Who sits in which slot, by columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from engram.memory._example import Example, Id, Tags
from engram.memory._table import NONE, Indices, Table

Facts: TypeAlias = tuple[int, int, bool, bool, bool]
"""How many sit there, how many are sealed, and whether there are tasks, labels, numbers for ids."""


class Seats:
    """A dense table: slots 0..len-1 are taken, those below ``sealed`` for sampling."""

    def __init__(self) -> None:
        self.sealed = 0
        self.has_tasks = self.has_labels = False  # of those held: all or none
        self.ids: list[Id] = []
        self.tags: list[Tags | None] = []
        self.slot_of: dict[Id, int] = {}
        # By slot: the tasks, the labels and, while all are numbers, the ids once more: what a
        # sample needs is read from an array much faster than from a list.
        self.table = Table()
        self.numeric = True

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
            copied(self.tags[slot]),
        )

    def restore(self, facts: Facts) -> None:
        """Undo the rest when everybody sits where they did: who came, and what is counted."""
        length, self.sealed, self.has_tasks, self.has_labels, self.numeric = facts
        del self.ids[length:], self.tags[length:]
        self.slot_of = {id: slot for slot, id in enumerate(self.ids)}
        if self.numeric:
            self.table.array[2, :length] = self.ids


def copied(tags: Tags | None) -> Tags | None:
    """Return tags that somebody may change without changing the memory's."""
    return None if tags is None else dict(tags)
