"""A group of examples that share a limit: who is in it, who leaves, and how to undo that."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from engram.memory._example import Id
from engram.memory._journal import Journal


class Ring:
    """The last ones to come, oldest first."""

    __slots__ = ("limit", "members", "seen", "turn")

    def __init__(self, limit: int, seen: int = 0, members: Iterable[Id] = ()) -> None:
        self.limit = limit
        self.seen = seen
        self.turn = 0  # when its size last changed, counted over all groups
        self.members = deque(members)

    def exchange(self, newcomer: Id, chance: float, journal: Journal) -> Id | None:  # noqa: ARG002
        """Take in the newcomer for the oldest member, which is returned."""
        members = self.members
        journal.append((_ring_again, self, self.seen, members[0], newcomer))
        self.seen += 1
        members.append(newcomer)
        return members.popleft()

    def evict(self, chance: float, journal: Journal) -> Id:  # noqa: ARG002
        """Give up the oldest member."""
        members = self.members
        journal.append((_ring_again, self, self.seen, members[0], None))
        return members.popleft()

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

    __slots__ = ("limit", "members", "seen", "turn")

    def __init__(self, limit: int, seen: int = 0, members: Iterable[Id] = ()) -> None:
        self.limit = limit
        self.seen = seen
        self.turn = 0
        self.members = list(members)

    def exchange(self, newcomer: Id, chance: float, journal: Journal) -> Id | None:
        """Take in the newcomer with probability size / seen; return who left, or None."""
        members = self.members
        journal.append((_uniform_again, self, self.seen, self.limit))
        self.seen += 1
        self.limit = len(members)
        place = int(chance * self.seen)
        if place >= self.limit:
            return None
        leaving = members[place]
        journal.append((members.__setitem__, place, leaving))
        members[place] = newcomer
        return leaving

    def evict(self, chance: float, journal: Journal) -> Id:
        """Give up a member at random."""
        members = self.members
        place = int(chance * len(members))
        journal.append((_list_again, members, len(members), place, members[place], members[-1]))
        members[place], members[-1] = members[-1], members[place]
        leaving = members.pop()
        self.limit = len(members)
        return leaving

    def discard(self, leaving: set[Id]) -> None:
        """Forget these members, as if they had never come."""
        self.members = [member for member in self.members if member not in leaving]
        self.seen -= len(leaving)


Group: TypeAlias = Ring | Uniform
Members: TypeAlias = deque[Id] | list[Id]


def reset(group: Group, limit: int, seen: int, turn: int, members: Members) -> None:
    """Undo what a change did to a group, but for who came and who left."""
    group.limit, group.seen, group.turn, group.members = limit, seen, turn, members


def _ring_again(ring: Ring, seen: int, oldest: Id, newcomer: Id | None) -> None:
    """Undo what let the newcomer in, if there is one, and the oldest member go."""
    members, ring.seen = ring.members, seen
    if members and members[-1] == newcomer:
        members.pop()
    if not members or members[0] != oldest:
        members.appendleft(oldest)


def _uniform_again(uniform: Uniform, seen: int, limit: int) -> None:
    """Undo what an exchange did, but for who left."""
    uniform.seen, uniform.limit = seen, limit


def _list_again(members: list[Id], length: int, place: int, leaving: Id, last: Id) -> None:
    """Undo what let the member of a place go and put the last one there."""
    members[length - 1 :] = [last]
    members[place] = leaving


def shrink(group: Group, size: int, seen: int, turn: int) -> None:
    """Undo what let a newcomer in beside those who were there."""
    group.seen, group.turn = seen, turn
    while len(group.members) > size:
        group.members.pop()
