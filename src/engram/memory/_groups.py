"""Groups of examples that share a limit: one for each (task, class), or one for the whole pool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from engram.memory._example import Id
from engram.memory._group import Group, Ring, Uniform, reset, shrink
from engram.memory._journal import Journal

Key: TypeAlias = tuple[int, int]


class Groups:
    """All groups, and at any time the largest: every operation on one member is O(1)."""

    def __init__(self, uniform: bool, limit: int, journal: Journal) -> None:
        self.limit = limit
        self._journal = journal
        self._turns = 0
        self._kind: type[Ring] | type[Uniform] = Uniform if uniform else Ring
        self.by_key: dict[Key, Group] = {}
        # An OrderedDict, for a plain dict finds its first key only by passing all deleted ones.
        self._by_size: dict[int, OrderedDict[Key, Group]] = {}
        self.largest = 0

    def insert(self, key: Key) -> Group:
        """Take in a new group of the common limit."""
        return self._insert(key, self._kind(self.limit))

    def restore(self, key: Key, limit: int, seen: int, members: Iterable[Id]) -> None:
        """Take in a group as `items` gave it; the order of the calls is the order of `items`."""
        self._insert(key, self._kind(limit, seen, members))

    def grow(self, key: Key, newcomer: Id) -> None:
        """Add a member to a group that has a place for it."""
        group = self.by_key[key]
        self._journal.append((shrink, group, len(group.members), group.seen, group.turn))
        self._unfile(key, group)
        group.seen += 1
        group.members.append(newcomer)
        self._file(key, group)

    def evict(self, chance: float) -> Id:
        """Give up a member of the largest group; of several, the one that has waited longest."""
        key, group = next(iter(self._by_size[self.largest].items()))
        self._note(group)
        self._unfile(key, group)
        leaving = group.evict(chance, self._journal)
        self._file(key, group)
        return leaving

    def discard(self, key: Key, leaving: set[Id]) -> None:
        """Forget members of one group; O(its size)."""
        group = self.by_key[key]
        self._note(group)
        self._unfile(key, group)
        group.discard(leaving)
        self._file(key, group)

    def items(self) -> Iterator[tuple[Key, Group]]:
        """Iterate over the groups in the order that `restore` needs to rebuild them."""
        return iter(sorted(self.by_key.items(), key=lambda item: item[1].turn))

    def _note(self, group: Group) -> None:
        """Note how a group is; who comes and who leaves is noted where that happens."""
        facts = group.limit, group.seen, group.turn, group.members
        self._journal.append((reset, group, *facts))

    def refile(self, limit: int) -> None:
        """Undo the rest when all groups are as they were: the common limit, who is the largest."""
        self.limit, self.largest, self._by_size = limit, 0, {}
        for key, group in self.items():
            self._put(key, group)

    def _insert(self, key: Key, group: Group) -> Group:
        """Take in a group as the last one of its size."""
        self._journal.append((self.by_key.pop, key, None))
        self.by_key[key] = group
        self._file(key, group)
        return group

    def _unfile(self, key: Key, group: Group) -> None:
        size = len(group.members)
        del self._by_size[size][key]
        if not self._by_size[size]:
            del self._by_size[size]

    def _file(self, key: Key, group: Group) -> None:
        self._turns += 1
        group.turn = self._turns
        self._put(key, group)

    def _put(self, key: Key, group: Group) -> None:
        size = len(group.members)
        self._by_size.setdefault(size, OrderedDict())[key] = group
        self.largest = max(self.largest, size)
        while self.largest not in self._by_size:
            self.largest -= 1
