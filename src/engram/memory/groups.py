"""Groups of examples that share a limit: one for each (task, class), or one for the whole pool.

A group decides which of its members leaves; `Groups` knows which group is the largest, and so which
one makes room in a full memory; `Descriptions` is what a policy that looks at the examples says of
those that are held. What they change they note in a journal. `choose_who_stays` changes nothing: it
is a function of the groups as they are, for a memory that is given another policy or capacity.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from engram.errors import EngramError, shown
from engram.memory.examples import Id
from engram.memory.journal import Journal
from engram.memory.policies import Described, Policy, Selective
from engram.memory.slots import Candidate, Measures

Key: TypeAlias = tuple[int, int]
"""A task and a label."""


class Ring:
    """The last ones to come, oldest first."""

    __slots__ = ("limit", "members", "seen", "turn")

    def __init__(self, limit: int, seen: int = 0, members: Iterable[Id] = ()) -> None:
        self.limit = limit
        self.seen = seen
        self.turn = 0  # when its size last changed, counted over all groups
        self.members = deque(members)

    def exchange(self, candidate: Id, chance: float, journal: Journal) -> Id | None:  # noqa: ARG002
        """Take in the candidate for the oldest member, which is returned."""
        members = self.members
        journal.append((_undo_ring, self, self.seen, members[0], candidate))
        self.seen += 1
        members.append(candidate)
        return members.popleft()

    def evict(self, chance: float, journal: Journal) -> Id:  # noqa: ARG002
        """Give up the oldest member."""
        members = self.members
        journal.append((_undo_ring, self, self.seen, members[0], None))
        return members.popleft()

    def discard(self, leaving: set[Id]) -> None:
        """Forget these members, as if they had never come."""
        self.members = deque(member for member in self.members if member not in leaving)
        self.seen -= len(leaving)

    grow_old = discard


class Uniform:
    """A uniform sample of all that came (reservoir sampling).

    ``chance`` is a uniform draw from [0, 1). After an eviction or an exchange the sample never
    grows again beyond its size: a later candidate would otherwise be favoured over all the earlier
    ones that were turned away. Places freed by `discard` may be filled: the members that left take
    their arrival with them, and the next candidates stand in for them.
    """

    __slots__ = ("limit", "members", "seen", "turn")

    def __init__(self, limit: int, seen: int = 0, members: Iterable[Id] = ()) -> None:
        self.limit = limit
        self.seen = seen
        self.turn = 0
        self.members = list(members)

    def exchange(self, candidate: Id, chance: float, journal: Journal) -> Id | None:
        """Take in the candidate with probability size / seen; return which one left, or None."""
        members = self.members
        journal.append((_undo_counts, self, self.seen, self.limit))
        self.seen += 1
        self.limit = len(members)
        place = int(chance * self.seen)
        if place >= self.limit:
            return None
        leaving = members[place]
        journal.append((members.__setitem__, place, leaving))
        members[place] = candidate
        return leaving

    def exchange_all(
        self, candidates: Sequence[Id], chances: Measures, journal: Journal
    ) -> list[tuple[int, Id]]:
        """Do what `exchange` does for one after another; return who was taken in, and who left."""
        members, count = self.members, len(candidates)
        journal.append((_undo_counts, self, self.seen, self.limit))
        places = (chances * np.arange(self.seen + 1, self.seen + count + 1)).astype(np.int64)
        self.seen += count
        self.limit = len(members)
        taken = []
        for position in np.flatnonzero(places < self.limit).tolist():
            place = int(places[position])
            leaving = members[place]
            journal.append((members.__setitem__, place, leaving))
            members[place] = candidates[position]
            taken.append((position, leaving))
        return taken

    def evict(self, chance: float, journal: Journal) -> Id:
        """Give up a member at random."""
        members = self.members
        place = int(chance * len(members))
        journal.append((_undo_eviction, members, len(members), place, members[place], members[-1]))
        members[place], members[-1] = members[-1], members[place]
        leaving = members.pop()
        self.limit = len(members)
        return leaving

    def discard(self, leaving: set[Id]) -> None:
        """Forget these members, as if they had never come."""
        self.members = [member for member in self.members if member not in leaving]
        self.seen -= len(leaving)

    def grow_old(self, leaving: set[Id]) -> None:
        """Forget these members, and as many of all that came as they stand for.

        Otherwise those that are too old would go on to make it hard for candidates to get in.
        """
        size = len(self.members)
        self.members = [member for member in self.members if member not in leaving]
        rest = len(self.members)
        self.seen = max(rest, round(self.seen * rest / size))


class Descriptions:
    """The description of every example held, by its id; changes are noted in the journal."""

    def __init__(self, policy: Selective, journal: Journal) -> None:
        self._policy, self._journal = policy, journal
        self._of: dict[Id, Described] = {}

    @property
    def length(self) -> int | None:
        """How many numbers describe an example; None while nothing is held."""
        return next((len(each) for each in self._of.values()), None)

    def entering(
        self, candidates: Iterable[Candidate], described: Described
    ) -> Iterator[Candidate]:
        """Yield the candidates of a batch; each one's description is known from then on."""
        for candidate in candidates:
            position, id = candidate[:2]
            if id in self._of:
                self._journal.append((self._of.__setitem__, id, self._of[id]))
            else:
                self._journal.append((self._of.pop, id, None))
            self._of[id] = described[position]
            yield candidate

    def leaving(self, ids: Sequence[Id], chance: float) -> int:
        """Return the place of the one that leaves, of members and, at the end, a candidate."""
        described = np.stack([self._of[id] for id in ids])
        place = self._policy.leaving(described, chance)
        if not isinstance(place, int | np.integer) or not 0 <= place < len(ids):
            raise EngramError(
                f"{type(self._policy).__name__}.leaving must return a place from 0 to "
                f"{len(ids) - 1}, not {shown(place)}."
            )
        return int(place)

    def keep(self, held: Mapping[Id, int]) -> None:
        """Forget all that is not held."""
        for id in [id for id in self._of if id not in held]:
            self._journal.append((self._of.__setitem__, id, self._of[id]))
            del self._of[id]

    def by_slot(self, ids: Sequence[Id]) -> Described:
        """Return the descriptions of these, [n, k]."""
        return np.stack([self._of[id] for id in ids]) if ids else np.zeros((0, 0), np.float32)

    def restore(self, ids: Sequence[Id], described: object) -> bool:
        """Take in what `by_slot` gave; return whether it can be that."""
        if not isinstance(described, np.ndarray) or described.dtype != np.float32:
            return False
        if described.ndim != 2 or len(described) != len(ids):
            return False
        self._of = dict(zip(ids, described, strict=True))
        return bool(np.isfinite(described).all())


class Selected:
    """Those that a policy has let stay, which looks at what is in them (`Selective`)."""

    __slots__ = ("_descriptions", "limit", "members", "seen", "turn")

    def __init__(
        self,
        descriptions: Descriptions,
        limit: int,
        seen: int = 0,
        members: Iterable[Id] = (),
    ) -> None:
        self._descriptions = descriptions
        self.limit = limit
        self.seen = seen
        self.turn = 0
        self.members = list(members)

    def exchange(self, candidate: Id, chance: float, journal: Journal) -> Id | None:
        """Take in the candidate for the one that leaves, which is returned: None if it is that."""
        members = self.members
        journal.append((_undo_counts, self, self.seen, self.limit))
        self.seen += 1
        place = self._descriptions.leaving([*members, candidate], chance)
        if place == len(members):
            return None
        leaving = members[place]
        journal.append((members.__setitem__, place, leaving))
        members[place] = candidate
        return leaving

    def evict(self, chance: float, journal: Journal) -> Id:
        """Give up the member that leaves."""
        members = self.members
        place = self._descriptions.leaving(members, chance)
        journal.append((_undo_eviction, members, len(members), place, members[place], members[-1]))
        members[place], members[-1] = members[-1], members[place]
        return members.pop()

    def discard(self, leaving: set[Id]) -> None:
        """Forget these members, as if they had never come."""
        self.members = [member for member in self.members if member not in leaving]
        self.seen -= len(leaving)

    grow_old = discard


Group: TypeAlias = Ring | Uniform | Selected
Members: TypeAlias = deque[Id] | list[Id]


class Groups:
    """All groups, and at any time the largest: every operation on one member is O(1)."""

    def __init__(
        self,
        uniform: bool,
        limit: int,
        journal: Journal,
        descriptions: Descriptions | None = None,
    ) -> None:
        self.limit = limit
        self._journal = journal
        self._turns = 0
        self._kind: Callable[..., Group] = Uniform if uniform else Ring
        if descriptions is not None:
            self._kind = partial(Selected, descriptions)
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

    def grow(self, key: Key, candidate: Id) -> None:
        """Add a member to a group that has a place for it."""
        group = self.by_key[key]
        self._journal.append((_undo_growth, group, len(group.members), group.seen, group.turn))
        self._remove_by_size(key, group)
        group.seen += 1
        group.members.append(candidate)
        self._insert_by_size(key, group)

    def evict(self, chance: float) -> Id:
        """Give up a member of the largest group; of several, the one that has waited longest."""
        key, group = next(iter(self._by_size[self.largest].items()))
        self._note(group)
        self._remove_by_size(key, group)
        leaving = group.evict(chance, self._journal)
        self._insert_by_size(key, group)
        return leaving

    def discard(self, key: Key, leaving: set[Id], *, grow_old: bool = False) -> None:
        """Forget members of one group, with others of their age if it is for that; O(its size)."""
        group = self.by_key[key]
        self._note(group)
        self._remove_by_size(key, group)
        if grow_old:
            group.grow_old(leaving)
        else:
            group.discard(leaving)
        self._insert_by_size(key, group)

    def items(self) -> Iterator[tuple[Key, Group]]:
        """Iterate over the groups in the order that `restore` needs to rebuild them."""
        return iter(sorted(self.by_key.items(), key=lambda item: item[1].turn))

    def sort_by_size(self, limit: int) -> None:
        """Undo the rest when all groups are as they were: the common limit, which is largest."""
        self.limit, self.largest, self._by_size = limit, 0, {}
        for key, group in self.items():
            self._put(key, group)

    def _note(self, group: Group) -> None:
        """Note in the journal how a group is; its members are noted where they come and leave."""
        values = group.limit, group.seen, group.turn, group.members
        self._journal.append((_undo_group, group, *values))

    def _insert(self, key: Key, group: Group) -> Group:
        """Take in a group as the last one of its size."""
        self._journal.append((self.by_key.pop, key, None))
        self.by_key[key] = group
        self._insert_by_size(key, group)
        return group

    def _remove_by_size(self, key: Key, group: Group) -> None:
        size = len(group.members)
        del self._by_size[size][key]
        if not self._by_size[size]:
            del self._by_size[size]

    def _insert_by_size(self, key: Key, group: Group) -> None:
        self._turns += 1
        group.turn = self._turns
        self._put(key, group)

    def _put(self, key: Key, group: Group) -> None:
        size = len(group.members)
        self._by_size.setdefault(size, OrderedDict())[key] = group
        self.largest = max(self.largest, size)
        while self.largest not in self._by_size:
            self.largest -= 1


def _undo_ring(ring: Ring, seen: int, oldest: Id, candidate: Id | None) -> None:
    """Undo what let the candidate in, if there is one, and the oldest member go."""
    members, ring.seen = ring.members, seen
    if members and members[-1] == candidate:
        members.pop()
    if not members or members[0] != oldest:
        members.appendleft(oldest)


def _undo_counts(uniform: Uniform | Selected, seen: int, limit: int) -> None:
    """Undo what an exchange did, but for the member that left."""
    uniform.seen, uniform.limit = seen, limit


def _undo_eviction(members: list[Id], length: int, place: int, leaving: Id, last: Id) -> None:
    """Undo what let the member of a place go and put the last one there."""
    members[length - 1 :] = [last]
    members[place] = leaving


def _undo_growth(group: Group, size: int, seen: int, turn: int) -> None:
    """Undo what let a candidate in beside those that were there."""
    group.seen, group.turn = seen, turn
    while len(group.members) > size:
        group.members.pop()


def _undo_group(group: Group, limit: int, seen: int, turn: int, members: Members) -> None:
    """Undo what a change did to a group, but for the members that came and left."""
    group.limit, group.seen, group.turn, group.members = limit, seen, turn, members


class Kept(NamedTuple):
    """A group of a policy: how many came to it, what its limit is, and who is in it, in order."""

    key: Key
    limit: int
    seen: int
    slots: list[int]


def choose_who_stays(
    groups: Sequence[Kept],
    before: Policy,
    after: Policy,
    limits: tuple[int, int],
    key_of: Callable[[int], Key],
    arrival: Callable[[int], Any],
    generator: np.random.Generator,
) -> list[Kept]:
    """Return the groups of a policy, made of the members of those of another one.

    ``limits`` are those of a group before and after.

    - Groups stay what they are where both policies have the same ones; a pool is divided by class,
      and the groups of classes become one pool, otherwise. Of a pool that is divided each class is
      taken to have had its share of all that came.
    - **The newest stay** with `ClassRing` and `Fifo`, in the order in which they came: that of the
      group where it is one that keeps an order, else by task, time and number.
    - **A uniform sample stays** with `ClassSample` and `Reservoir`: of each group, or of all that
      came to several uniform groups, a group being drawn from as often as so many came to it. Where
      that asks for more than a group holds, the others make up for it, and where groups of the
      newest become uniform, the sample is of what they hold.
    - **Places that are added are filled by whatever comes next**, as those of erased examples are.
    """
    if before.by_class == after.by_class:
        merged = [(group.key, [group]) for group in groups]
    elif after.by_class:
        merged = _divided(groups, key_of)
    else:
        merged = [(key_of(0), list(groups))] if groups else []
    previous, limit = limits
    kept = []
    for key, parts in merged:
        seen = sum(part.seen for part in parts)
        together = [slot for part in parts for slot in part.slots]
        if not after.uniform:
            if before.uniform or len(parts) > 1:
                rank = {
                    slot: i - len(part.slots) for part in parts for i, slot in enumerate(part.slots)
                }
                together.sort(key=lambda slot, rank=rank: (*arrival(slot), rank[slot]))  # type: ignore[misc]
            together = together[max(0, len(together) - limit) :]
        elif len(together) > limit:
            together = _sample(parts, limit, before.uniform, generator)
        own = limit
        if previous == limit and before.uniform == after.uniform and len(parts) == 1:
            own = min(parts[0].limit or limit, limit)  # it may have been lowered by an eviction
        kept.append(Kept(key, max(own, len(together)), max(seen, len(together)), together))
    return kept


def _divided(groups: Sequence[Kept], key_of: Callable[[int], Key]) -> list[tuple[Key, list[Kept]]]:
    """Return a pool's members by class, each with its share of all that came."""
    found: dict[Key, list[int]] = {}
    for group in groups:
        for slot in group.slots:
            found.setdefault(key_of(slot), []).append(slot)
    total = sum(len(group.slots) for group in groups)
    came = sum(group.seen for group in groups)
    return [
        (key, [Kept(key, 0, max(len(slots), round(came * len(slots) / total)), slots)])
        for key, slots in found.items()
    ]


def _sample(
    parts: Sequence[Kept], count: int, uniform: bool, generator: np.random.Generator
) -> list[int]:
    """Return a sample of the members of groups, in the groups' order."""
    together = [slot for part in parts for slot in part.slots]
    wanted = [count] if len(parts) == 1 else [0] * len(parts)
    if uniform and len(parts) > 1:
        came = [part.seen for part in parts]
        wanted = generator.multivariate_hypergeometric(came, count, method="marginals").tolist()
    chosen: set[int] = set()
    for part, share in zip(parts, wanted, strict=True):
        share = min(share, len(part.slots))
        chosen |= set(generator.choice(part.slots, share, replace=False).tolist())
    rest = [slot for slot in together if slot not in chosen]
    if rest:
        chosen |= set(generator.choice(rest, count - len(chosen), replace=False).tolist())
    return [slot for slot in together if slot in chosen]
