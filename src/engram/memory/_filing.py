"""The decision on each example: kept or not, in which slot, and who makes room."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from engram.memory._example import Id
from engram.memory._group import Group
from engram.memory._groups import Groups, Key
from engram.memory._journal import Journal
from engram.memory._moves import Newcomer
from engram.memory._policies import Policy
from engram.memory._seats import Facts as Seated
from engram.memory._slots import Slots
from engram.memory._table import NONE

Facts: TypeAlias = tuple[int | None, int, Seated]
"""The budget, the common limit of the groups, and what the slots have to tell."""

_POOL: Key = (NONE, NONE)


class Filing:
    """Slots and groups kept in step under a policy and a budget of examples; O(1) an example."""

    def __init__(self, policy: Policy, max_examples: int | None) -> None:
        self.policy = policy
        self.max_examples: int | None = None
        self.journal: Journal = []
        self.slots = Slots(self.journal)
        self.groups = Groups(policy.uniform, policy.group_limit, self.journal)
        if max_examples is not None:
            self.restrict(max_examples)

    def facts(self) -> Facts:
        """Return what `restore` is to be told when a change is undone."""
        seats = self.slots  # read here: between two steps every call is a cold one
        seated = len(seats.ids), seats.sealed, seats.has_tasks, seats.has_labels, seats.numeric
        return self.max_examples, self.groups.limit, seated

    def restore(self, facts: Facts) -> None:
        """Undo the rest when the journal has put back who came and who left."""
        self.max_examples, limit, seated = facts
        self.groups.refile(limit)
        self.slots.restore(seated)

    def restrict(self, max_examples: int) -> None:
        """Lower the budget; only while nothing is held."""
        held = self.max_examples
        self.max_examples = max_examples if held is None else min(held, max_examples)
        self.groups.limit = min(self.groups.limit, self.max_examples)

    @property
    def capacity(self) -> int | None:
        """The most examples that can be held at a time; None where there is no bound."""
        return self.max_examples if self.policy.by_class else self.groups.limit

    def key(self, task: int, label: int) -> Key:
        """Return the group of a task and a class."""
        return (task, label) if self.policy.by_class else _POOL

    def offer(self, newcomers: Iterable[Newcomer]) -> None:
        """Keep each newcomer or not, one after another, as the policy and its chance decide."""
        slots, groups, by_class = self.slots, self.groups, self.policy.by_class
        journal, find = self.journal, groups.by_key.get
        for newcomer in newcomers:
            _, id, task, label, _, chance = newcomer
            key = (task, label) if by_class else _POOL
            group = find(key) or groups.insert(key)
            if len(group.members) < group.limit and self._make_room(group, chance):
                groups.grow(key, id)
                slots.append(newcomer)
                continue
            leaving = group.exchange(id, chance, journal)
            if leaving is None:
                continue
            slot = slots.slot_of[leaving]
            if slot >= slots.sealed:
                slots.replace(slot, newcomer)
            else:  # the slot may be sampled already, the newcomer not before its task has ended
                slots.remove(slot)
                slots.append(newcomer)

    def _make_room(self, group: Group, chance: float) -> bool:
        """Tell whether the group may grow; in a full memory, at a larger one's expense."""
        if self.max_examples is None or len(self.slots.ids) < self.max_examples:
            return True
        if len(group.members) == self.groups.largest:
            return False
        self.slots.remove(self.slots.slot_of[self.groups.evict(chance)])
        return True

    def update(self, newcomer: Newcomer) -> bool:
        """Take the newcomer for the one held under its id; False if it is to be offered anew."""
        _, id, task, label, _, _ = newcomer
        slot = self.slots.slot_of.get(id)
        if slot is None:
            return False
        if self.key_at(slot) == self.key(task, label):
            self.slots.replace(slot, newcomer)
            return True
        self.discard([id])
        return False

    def discard(self, ids: Iterable[Id]) -> None:
        """Drop those of the ids that are held; O(the sizes of their groups)."""
        leaving: dict[Key, set[Id]] = {}
        for id in ids:
            slot = self.slots.slot_of.get(id)
            if slot is not None:
                leaving.setdefault(self.key_at(slot), set()).add(id)
                self.slots.remove(slot)
        for key, members in leaving.items():
            self.groups.discard(key, members)

    def key_at(self, slot: int) -> Key:
        """Return the group of who sits in a slot."""
        return self.slots.key(slot) if self.policy.by_class else _POOL
