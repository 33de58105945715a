"""Groups of examples that share a limit: one for each (task, class), or one for the whole pool."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from engram.memory._example import Id

Key: TypeAlias = tuple[int, int]


class Ring:
    """The last ones to come, oldest first."""

    __slots__ = ("limit", "members", "seen")

    def __init__(self, limit: int, seen: int = 0, members: Iterable[Id] = ()) -> None:
        self.limit = limit
        self.seen = seen
        self.members = deque(members)

    def exchange(self, newcomer: Id, chance: float) -> Id | None:  # noqa: ARG002
        """Take in the newcomer for the oldest member, which is returned."""
        self.members.append(newcomer)
        return self.members.popleft()

    def evict(self, chance: float) -> Id:  # noqa: ARG002
        """Give up the oldest member."""
        return self.members.popleft()

    def discard(self, leaving: set[Id]) -> None:
        """Forget these members, as if they had never come."""
        self.members = deque(member for member in self.members if member not in leaving)
        self.seen -= len(leaving)


class Uniform:
    """A uniform sample of all that came (reservoir sampling).

    ``chance`` is a uniform draw from [0, 1). After an eviction or an exchange the sample never
    grows again beyond its size: a later newcomer would otherwise be favoured over all the earlier
    ones that were turned away. Places freed by `discard` may be filled: the members that left take
    their arrival with them, and the next newcomers stand in for them.
    """

    __slots__ = ("limit", "members", "seen")

    def __init__(self, limit: int, seen: int = 0, members: Iterable[Id] = ()) -> None:
        self.limit = limit
        self.seen = seen
        self.members = list(members)

    def exchange(self, newcomer: Id, chance: float) -> Id | None:
        """Take in the newcomer with probability size / seen; return who left, or None."""
        self.limit = len(self.members)
        place = int(chance * self.seen)
        if place >= self.limit:
            return None
        leaving, self.members[place] = self.members[place], newcomer
        return leaving

    def evict(self, chance: float) -> Id:
        """Give up a member at random."""
        place = int(chance * len(self.members))
        self.members[place], self.members[-1] = self.members[-1], self.members[place]
        leaving = self.members.pop()
        self.limit = len(self.members)
        return leaving

    def discard(self, leaving: set[Id]) -> None:
        """Forget these members, as if they had never come."""
        self.members = [member for member in self.members if member not in leaving]
        self.seen -= len(leaving)


Group: TypeAlias = Ring | Uniform


class Groups:
    """All groups, and at any time the largest: every operation on one member is O(1)."""

    def __init__(self, uniform: bool, limit: int) -> None:
        self.limit = limit
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
        self._unfile(key, group)
        group.members.append(newcomer)
        self._file(key, group)

    def evict(self, chance: float) -> Id:
        """Give up a member of the largest group; of several, the one that has waited longest."""
        key, group = next(iter(self._by_size[self.largest].items()))
        self._unfile(key, group)
        leaving = group.evict(chance)
        self._file(key, group)
        return leaving

    def discard(self, key: Key, leaving: set[Id]) -> None:
        """Forget members of one group; O(its size)."""
        group = self.by_key[key]
        self._unfile(key, group)
        group.discard(leaving)
        self._file(key, group)

    def items(self) -> Iterator[tuple[Key, Group]]:
        """Iterate over the groups in the order that `restore` needs to rebuild them."""
        for same_size in self._by_size.values():
            yield from same_size.items()

    def _insert(self, key: Key, group: Group) -> Group:
        """Take in a group as the last one of its size."""
        self.by_key[key] = group
        self._file(key, group)
        return group

    def _unfile(self, key: Key, group: Group) -> None:
        size = len(group.members)
        del self._by_size[size][key]
        if not self._by_size[size]:
            del self._by_size[size]

    def _file(self, key: Key, group: Group) -> None:
        size = len(group.members)
        self._by_size.setdefault(size, OrderedDict())[key] = group
        self.largest = max(self.largest, size)
        while self.largest not in self._by_size:
            self.largest -= 1
