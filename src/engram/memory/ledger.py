"""A policy at work: which incoming examples are kept, in which slots, and which make room."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engram.errors import EngramError, shown, unknown
from engram.memory.examples import (
    NONE,
    STORED_BITS,
    UNREAD,
    Example,
    Id,
    Ids,
    Integers,
    Metadata,
    Numbers,
    Tags,
    Where,
    checked_ids,
    checked_metadata,
    checked_tags,
    condition,
    from_bytes,
    stored_ids,
    to_bytes,
)
from engram.memory.files import State, refuse_unless
from engram.memory.groups import (
    Descriptions,
    Group,
    Groups,
    Kept,
    Key,
    Uniform,
    choose_who_stays,
)
from engram.memory.journal import Journal, deep_copy, new_lock, refuse_within, undo
from engram.memory.policies import (
    Described,
    Policy,
    Selective,
    check_policy,
    natural,
    policy_in_words,
    policy_to_json,
    positive,
)
from engram.memory.sampling import draw
from engram.memory.slots import (
    MEASURES,
    Candidate,
    Counts,
    Indices,
    Measures,
    Moves,
    SlotTable,
    copied,
)

Result = TypeVar("Result")

_POOL: Key = (NONE, NONE)
_MANY = 16  # examples of a batch: fewer are looked at one by one faster than together


class Age(NamedTuple):
    """How old an example may become: the newest task or time that has come, less its own."""

    most: float
    by: str
    """``"task"`` or ``"time"``."""

    def check(self, batch: Metadata) -> None:
        """Refuse a batch whose examples have no age."""
        lacking = batch.tasks[0] == NONE if self.by == "task" else "times" not in batch.measures
        if lacking:
            raise EngramError(
                f"The memory lets examples go by their {self.by}; give {self.by}s with each batch."
            )

    def of_batch(self, batch: Metadata) -> Sequence[float]:
        """Return the task or time of each example of a batch."""
        return batch.tasks if self.by == "task" else batch.measures["times"]

    def of_slots(self, slots: SlotTable) -> NDArray[Any]:
        """Return the task or time of each example held."""
        if self.by == "task":
            return slots.tasks
        times = slots.measure("times")
        return np.empty(0) if times is None else times

    def too_old(self, held: NDArray[Any], newest: float) -> NDArray[np.bool_]:
        """Return which are too old where this is the newest; one without a time never is."""
        oldest = newest - self.most
        if held.dtype == np.int64 and oldest <= NONE:  # which no array can be compared with
            return np.zeros(len(held), bool)
        return held < oldest


def checked_age(max_age: object, age_by: object) -> Age | None:
    """Return what a user asked for, or refuse it."""
    if not isinstance(age_by, str) or age_by not in ("task", "time"):
        raise unknown("way to count ages", age_by, ["task", "time"])
    if max_age is None:
        return None
    number = isinstance(max_age, int | float) and not isinstance(max_age, bool)
    whole = "whole " if age_by == "task" else ""
    if (
        not number
        or not 0 <= max_age < 2**63  # type: ignore[operator]
        or not math.isfinite(max_age)  # type: ignore[arg-type]
        or (whole and not isinstance(max_age, int))
    ):
        raise EngramError(f"max_age is {shown(max_age)}; it must be a {whole}number of at least 0.")
    return Age(max_age, age_by)  # type: ignore[arg-type]


class Ledger:
    """What is known of a memory's examples: ids, tasks, labels and tags by slot, without a tensor.

    Slots 0..len-1 are taken, and those below `available` may be sampled. With ``max_examples`` a
    policy by class makes room by giving up an example of the largest (task, class): its oldest
    (`ClassRing`), or any (`ClassSample`, whose groups so stay uniform samples).

    An id that is held already is updated in place: contents, label, tags. If it comes back as
    another task or class under a policy by class, the old one goes and it is kept or not as if it
    were new. Examples without ids are numbered in the order in which they come; no number is used
    twice.

    >>> from engram.memory import ClassRing
    >>> ledger = Ledger(ClassRing(2))
    >>> ledger.add(tasks=0, labels=[5, 5, 5, 7])
    array([-1,  1,  0,  2])
    >>> ledger.available, len(ledger)
    (0, 3)
    >>> ledger.end_task()
    >>> ledger.available, ledger.ids
    (3, [2, 1, 3])
    """

    _age: Age | None = None
    _newest: float | None = None  # of the tasks or times that have come
    _max_bytes: int | None = None

    _descriptions: Descriptions | None = None  # of a policy that looks at the examples

    def __init__(
        self,
        policy: Policy,
        *,
        max_examples: int | None = None,
        seed: int = 0,
        max_age: float | None = None,
        age_by: str = "task",
    ) -> None:
        check_policy(policy)
        if max_examples is not None:
            positive("max_examples", max_examples)
        seed = natural("seed", seed)
        usual = max_age is None and age_by == "task"
        self._age = None if usual else checked_age(max_age, age_by)
        self._newest = None
        self._max_bytes = None
        self.policy = policy
        self.lock = new_lock()
        """Held while the ledger changes; a memory makes its storage's lock that of its ledger."""
        self.journal: Journal = []
        """What undoes a change that has begun; empty once it is made or undone."""
        self.moves: Moves | None = None
        """What the last `add` asks a storage to move before it writes; as a rule nothing (None).

        Rows move where an example of a finished task makes room for a current one (a full memory,
        a task taken up again), and where an id comes back as another class.
        """
        self._slots = SlotTable(self.journal)
        if isinstance(policy, Selective):
            self._descriptions = Descriptions(policy, self.journal)
        self._groups = Groups(policy.uniform, policy.group_limit, self.journal, self._descriptions)
        self._max_examples: int | None = None
        if max_examples is not None:
            self.restrict(max_examples)
        self._by_task: dict[int, Indices] | None = None
        self._generator = np.random.default_rng((seed, 0))
        self._seeded = self._generator.bit_generator.state
        self._drawn = 0  # chances, since the generator was seeded so
        self._next_id = 0
        self._erased: dict[Id, None] = {}

    # What can be read: nothing here changes what is held.

    def __len__(self) -> int:
        return len(self._slots.ids)

    @property
    def capacity(self) -> int | None:
        """The most examples that can be held at a time; None where there is no bound."""
        return self._max_examples if self.policy.by_class else self._groups.limit

    @property
    def max_examples(self) -> int | None:
        """The budget in examples."""
        return self._max_examples

    @property
    def available(self) -> int:
        """How many may be sampled: all held, or those of the tasks that have ended."""
        return len(self._slots.ids) if self.policy.include_current else self._slots.sealed

    @property
    def ids(self) -> list[Id]:
        """The ids by slot."""
        return self._slots.ids

    @property
    def tasks(self) -> Indices:
        """The tasks by slot, the least int64 where none was given."""
        return self._slots.tasks

    @property
    def labels(self) -> Indices:
        """The labels by slot, the least int64 where none was given."""
        return self._slots.labels

    @property
    def tags(self) -> list[Tags | None]:
        """Copies of the tags by slot."""
        return [copied(own) for own in self._slots.tags]

    @property
    def has_tasks(self) -> bool:
        """Whether the examples held have tasks."""
        return self._slots.has_tasks

    @property
    def has_labels(self) -> bool:
        """Whether the examples held have labels."""
        return self._slots.has_labels

    @property
    def table(self) -> Indices:
        """The tasks, the labels and the ids [3, rows]; the ids only where they are `numeric`."""
        return self._slots.columns.array

    @property
    def max_age(self) -> float | None:
        """The greatest age at which an example stays; None where all do."""
        return None if self._age is None else self._age.most

    @property
    def age_by(self) -> str:
        """What ages are counted in: ``"task"`` or ``"time"``."""
        return "task" if self._age is None else self._age.by

    @property
    def weights(self) -> Measures | None:
        """The weights by slot, 1 where none was given; None where no example was given one."""
        return self._slots.measure("weights")

    @property
    def times(self) -> Measures | None:
        """The times by slot, NaN where none was given; None where no example was given one."""
        return self._slots.measure("times")

    @property
    def sizes(self) -> Measures | None:
        """The bytes of the examples by slot, where a budget in bytes counts them one by one."""
        return self._slots.measure("sizes")

    @property
    def nbytes(self) -> int:
        """The sizes of the examples held, of those that came with one."""
        return self._slots.nbytes

    @property
    def numeric(self) -> bool:
        """Whether all ids so far were integers of 64 bits."""
        return self._slots.numeric

    def examples(self) -> Iterator[Example]:
        """Iterate over everything held, in slot order."""
        return map(self._slots.example, range(len(self)))

    def slots_by_task(self) -> dict[int, Indices]:
        """Return the slots of each task that may be sampled, in order."""
        if self._by_task is None:
            tasks = self.tasks[: self.available]
            if self.available and not self.has_tasks:
                raise EngramError("The memory's examples have no tasks; give tasks when adding.")
            self._by_task = _slots_by(tasks)
        return self._by_task

    def slots_by_label(self) -> dict[int, Indices]:
        """Return the slots of each class that may be sampled, in order."""
        if self.available and not self.has_labels:
            raise EngramError("The memory's examples have no labels; give labels when adding.")
        return _slots_by(self.labels[: self.available])

    def unread(self) -> Indices:
        """Return the slots of labels that are still to be read, in order."""
        return np.flatnonzero(self.labels == UNREAD)

    def enter_labels(self, slots: Indices, labels: Indices) -> None:
        """Enter labels that were to be read; the least number, which stands for none, as the next.

        That is no change of what is held: whatever undoes one may leave them to be read again.
        """
        self.labels[slots] = np.maximum(labels, NONE + 1)

    def draw(self, count: int, generator: np.random.Generator) -> Indices:
        """Return ``count`` slots drawn without replacement, all in order if there are fewer."""
        return draw(self.available, natural("count", count), generator)

    def rows(self, wanted: int, *, at_once: bool) -> int:
        """Return how many rows a storage allocates where so many are wanted.

        A pool, and whatever is to be allocated ``at_once``, gets all that it can ever hold.
        """
        if self.capacity is None:
            return wanted
        return self.capacity if at_once or not self.policy.by_class else min(wanted, self.capacity)

    def selected(self, ids: Ids | None, where: Where | None) -> list[Id]:
        """Return the ids asked for: those given, held or not, or of those held that match."""
        if ids is not None and where is None:
            return checked_ids(ids)
        if where is not None and ids is None:
            matches = condition(where)
            held = list(self.examples())  # the user's function may change what is held
            return [example.id for example in held if matches(example)]
        raise EngramError("erase needs either ids or where.")

    def prepare(
        self,
        tasks: int | Integers | None,
        labels: Integers | None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
        *,
        count: int | None = None,
        weights: Numbers | None = None,
        times: float | Numbers | None = None,
        sizes: list[int] | None = None,
        described: Described | None = None,
        unread: bool = False,
    ) -> Metadata:
        """Return what `add` would enter, or refuse it; nothing has changed yet.

        Labels that are ``unread`` are entered by `enter_labels`, later.
        """
        batch = checked_metadata(
            tasks,
            labels,
            ids,
            tags,
            count,
            weights=weights,
            times=times,
            sizes=sizes,
            unread=unread,
        )
        if described is not None:
            batch = batch._replace(described=described)
        if batch.tasks:
            self.check(batch)
        return batch

    def check(self, batch: Metadata) -> None:
        """Refuse a batch that lacks what the policy needs, or what the examples held have."""
        has_tasks, has_labels = batch.tasks[0] != NONE, batch.labels[0] != NONE
        if self.policy.by_class and not has_labels:
            raise EngramError(
                f"{type(self.policy).__name__} keeps examples by class; give labels, "
                "a one-dimensional integer tensor."
            )
        if self._descriptions is not None:
            self._check_described(batch.described)
        held = self._slots
        differ = has_tasks != held.has_tasks, has_labels != held.has_labels
        if True in differ and held.ids:
            name, had = ("tasks", held.has_tasks) if differ[0] else ("labels", held.has_labels)
            was = "with" if had else "without"
            raise EngramError(
                f"The memory holds examples {was} {name}; give all batches {was} {name}."
            )
        if self._age is not None:
            self._age.check(batch)

    def _check_described(self, described: Described | None) -> None:
        """Refuse a batch that is not described, or otherwise than the examples held."""
        if described is None:
            raise EngramError(
                f"{type(self.policy).__name__} looks at the examples; give `described`, what it "
                "says of each."
            )
        assert self._descriptions is not None
        held = self._descriptions.length
        if held not in (None, described.shape[1]):
            raise EngramError(
                f"{type(self.policy).__name__} describes an example by {described.shape[1]} "
                f"numbers, and those held by {held}."
            )

    # Changes, each whole: made to its end, or undone.

    def add(
        self,
        tasks: int | Integers | None,
        labels: Integers | None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
        *,
        count: int | None = None,
        weights: Numbers | None = None,
        times: float | Numbers | None = None,
        described: Described | None = None,
    ) -> Indices:
        """Return each example's slot, -1 where it was not kept or a later one of the batch took it.

        ``tasks`` may be one integer for all, and ``times`` one number. ``count`` is needed only
        where nothing else tells how many examples there are. A storage follows `moves` before it
        writes.
        """
        with self.lock:
            self.finish()
            batch = self.prepare(
                tasks,
                labels,
                ids,
                tags,
                count=count,
                weights=weights,
                times=times,
                described=described,
            )
            return self._change(lambda: np.array(self.file(batch), np.int64))

    def erase(self, ids: Ids | None = None, where: Where | None = None) -> Moves | None:
        """Drop these for good: their ids, held or not, never enter again.

        Returns what a storage has to move and to clear; None if nothing was held.
        """
        with self.lock:
            self.finish()
            leaving = self.selected(ids, where)
            return self._change(lambda: self.drop(leaving))

    def grow_old(self, newest: float) -> Moves | None:
        """Let go of what is too old beside this task or time, before anything of it has come.

        Returns what a storage has to move, as `erase` does; nothing happens without ``max_age``.
        """
        with self.lock:
            self.finish()
            age = self._age
            if age is None:
                return None

            def write() -> Moves | None:
                self._let_go(age, newest)
                self._by_task = None
                _, self.moves = self._slots.settle(0)
                return self.moves

            return self._change(write)

    def end_task(self) -> None:
        """Seal: everything held may be sampled from now on."""
        if not self.policy.include_current:
            with self.lock:
                self.finish()
                self._by_task = None  # first: an interruption never leaves it behind
                self._slots.sealed = len(self)

    def restrict_bytes(self, max_bytes: int) -> None:
        """Bound the sizes of what is held; only while nothing is."""
        self._max_bytes = max_bytes

    def restrict(self, max_examples: int) -> None:
        """Lower the budget; only while nothing is held."""
        held = self._max_examples
        self._max_examples = max_examples if held is None else min(held, max_examples)
        self._groups.limit = min(self._groups.limit, self._max_examples)

    def resized(
        self,
        policy: Policy,
        max_examples: int | None,
        max_bytes: int | None = None,
        sizes: list[int] | None = None,
    ) -> tuple[Ledger, Indices]:
        """Return another ledger that goes on with a policy and budget, and who stays, by slot here.

        See `Memory.resize` for who does. Nothing changes here.
        """
        with self.lock:
            self.finish()
            check_policy(policy)
            if isinstance(policy, Selective) or isinstance(self.policy, Selective):
                raise EngramError(
                    "A policy that looks at the examples cannot take over from another one, nor go "
                    "on with other examples; make a new memory, and add what this one holds."
                )
            if policy.by_class and len(self) and not self.has_labels:
                raise EngramError(
                    f"{type(policy).__name__} keeps examples by class, and the memory's have no "
                    "labels."
                )
            new = Ledger(
                policy, max_examples=max_examples, max_age=self.max_age, age_by=self.age_by
            )
            new._generator = copy.deepcopy(self._generator)
            new._erased, new._next_id, new._newest = {**self._erased}, self._next_id, self._newest
            sizes = [0] * len(self) if sizes is None else sizes
            groups = self._chosen_groups(policy, new)
            for group in groups:
                new._groups.restore(group.key, group.limit, group.seen, group.slots)
            count = sum(len(group.slots) for group in groups)
            nbytes = sum(sizes[slot] for group in groups for slot in group.slots)
            while (max_examples is not None and count > max_examples) or (
                max_bytes is not None and nbytes > max_bytes
            ):
                leaving = new._groups.evict(new._generator.random())
                count, nbytes = count - 1, nbytes - sizes[leaving]  # type: ignore[index]
            slots = new._take_slots(self, sizes if max_bytes is not None else None)
            new._max_bytes = max_bytes
            new.journal.clear()
            new._seeded = new._generator.bit_generator.state
            return new, slots

    def _chosen_groups(self, policy: Policy, new: Ledger) -> list[Kept]:
        """Return the groups that another policy makes of what is held."""
        slots, times = self._slots, self.times
        groups = [
            Kept(key, own.limit, own.seen, [slots.slot_of[id] for id in own.members])
            for key, own in self._groups.items()
        ]

        def arrival(slot: int) -> tuple[float, ...]:
            time = 0.0 if times is None or math.isnan(times[slot]) else float(times[slot])
            number = slots.ids[slot] if slots.numeric else 0
            return slots.columns.tasks[slot], time, number  # type: ignore[return-value]

        def key_of(slot: int) -> Key:
            return slots.key(slot) if policy.by_class else _POOL

        limits = self._groups.limit, new._groups.limit
        return choose_who_stays(
            groups, self.policy, policy, limits, key_of, arrival, new._generator
        )

    def _take_slots(self, other: Ledger, sizes: list[int] | None) -> Indices:
        """Enter the members of the groups, which are slots of another ledger, under their ids."""
        held, old = self._slots, other._slots
        members: list[int] = []
        for _, group in self._groups.items():
            own: list[Any] = [*group.members]
            members += own
            group.members = type(group.members)(old.ids[slot] for slot in own)
        kept = sorted(members)
        measures = {name: column[kept].tolist() for name, column in old.measured_columns().items()}
        measures.pop("sizes", None)
        if sizes is not None:
            measures["sizes"] = [float(sizes[slot]) for slot in kept]
        held.expect(old.ids)
        held.expect_measures(measures, len(kept))
        for place, slot in enumerate(kept):
            task, label = old.key(slot)
            held.append((place, old.ids[slot], task, label, old.tags[slot], 0.0))
        held.settle(len(kept))
        if not self.policy.include_current:
            available = len(old.ids) if other.policy.include_current else old.sealed
            held.sealed = sum(slot < available for slot in kept)
        return np.array(kept, np.int64)

    # The parts of a change, for a memory that changes its storage with it.

    def begin(self) -> None:
        """Begin a change, which ends with `commit` or with `undo`."""
        if self.journal:  # the undoing of an earlier change was interrupted as well
            self.undo()
        slots = self._slots  # read here: between two steps every call is a cold one
        flags = slots.has_tasks, slots.has_labels, slots.numeric, slots.measured
        counts = len(slots.ids), slots.sealed, *flags
        limits = self._max_examples, self._groups.limit, self._newest, self._max_bytes
        self.journal.append((self._restore, self._next_id, self._drawn, limits, counts))

    def note(self, call: Callable[..., object], *arguments: object) -> None:
        """Note a call that undoes what the change is about to do beside the ledger."""
        self.journal.append((call, *arguments))

    def noted(self) -> Journal:
        """Return a copy of what undoes the change that has begun."""
        return [*self.journal]

    def commit(self) -> None:
        """End a change: what is noted is no longer needed."""
        self.journal.clear()

    def undo(self) -> None:
        """Go back to where the ledger was when the change began, if one has."""
        undo(self.journal)

    def finish(self) -> None:
        """Finish the undoing of a change, if that was interrupted as well."""
        if self.journal:
            refuse_within(self, Ledger._change, Ledger.finish)
            self.undo()

    def _change(self, write: Callable[[], Result]) -> Result:
        """Make a change of the ledger alone: all of it or, where it is interrupted, nothing."""
        try:
            self.begin()
            written = write()
            self.commit()
        except BaseException:
            self.undo()
            raise
        return written

    def _restore(
        self,
        next_id: int,
        drawn: int,
        limits: tuple[int | None, int, float | None, int | None],
        counts: Counts,
    ) -> None:
        """Undo the rest when the journal has put back what came and what left."""
        self._max_examples, limit, self._newest, self._max_bytes = limits
        self._groups.sort_by_size(limit)
        self._slots.restore(counts)
        self._next_id, self._drawn = next_id, drawn
        self._by_task = self.moves = None
        bits = self._generator.bit_generator
        bits.state = self._seeded
        bits.advance(drawn)  # type: ignore[attr-defined]

    def file(self, batch: Metadata) -> list[int]:
        """Enter what `prepare` has checked; return the slots as `add` does."""
        count, chances = len(batch.tasks), None
        if self.policy.uniform:
            self._drawn += count
            chances = self._generator.random(count)
        pool = None if chances is None or count < _MANY else self._full_pool(batch)
        ids = self._numbered(batch.ids, count)
        self._slots.expect_measures(batch.measures, count)
        if pool is not None and chances is not None:
            self._offer_to_pool(pool, batch, ids, chances)
        else:
            self._offer_each(batch, ids, [0.0] * count if chances is None else chances.tolist())
        slots, self.moves = self._slots.settle(count)
        if self.policy.include_current or self.moves is not None:
            self._by_task = None
        return slots

    def _full_pool(self, batch: Metadata) -> Uniform | None:
        """Return the pool where nothing but the chance of each decides on a batch."""
        others = self._age is not None or self._descriptions is not None
        if others or batch.ids is not None or self._max_bytes is not None or self.policy.by_class:
            return None
        group = self._groups.by_key.get(_POOL)
        full = isinstance(group, Uniform) and len(group.members) >= group.limit
        return group if full else None  # type: ignore[return-value]

    def _offer_to_pool(
        self, pool: Uniform, batch: Metadata, ids: Sequence[Id], chances: Measures
    ) -> None:
        """Do what `_offer` does: most of a batch are passed over, and take no time of their own."""
        for place, leaving in pool.exchange_all(ids, chances, self.journal):
            own = batch.tasks[place], batch.labels[place], batch.tags[place], 0.0
            self._replace(leaving, (place, ids[place], *own))

    def _offer_each(self, batch: Metadata, ids: Sequence[Id], chances: list[float]) -> None:
        """Offer one after another those of a batch that may be kept."""
        count = len(batch.tasks)
        candidates: Iterable[Candidate] = zip(
            range(count), ids, batch.tasks, batch.labels, batch.tags, chances, strict=True
        )
        if self._age is not None:
            candidates = self._age_by_one_batch(self._age, batch, candidates)
        if self._descriptions is not None and batch.described is not None:
            candidates = self._descriptions.entering(candidates, batch.described)
        self._offer(candidates if batch.ids is None else self._new(candidates))
        if self._descriptions is not None:
            self._descriptions.keep(self._slots.slot_of)

    def _age_by_one_batch(
        self, age: Age, batch: Metadata, candidates: Iterable[Candidate]
    ) -> Iterable[Candidate]:
        """Let go of what is too old beside the newest of a batch; return who of it is not."""
        coming = age.of_batch(batch)
        newest = max(coming, default=None)
        if newest is not None:
            self._let_go(age, newest)
        if self._newest is None:
            return candidates
        return [each for each in candidates if self._newest - coming[each[0]] <= age.most]

    def _let_go(self, age: Age, newest: float) -> None:
        if self._newest is None or newest > self._newest:
            self._newest = newest
            held = age.of_slots(self._slots)
            old = np.flatnonzero(age.too_old(held, newest)).tolist() if len(self) else []
            self._discard([self._slots.ids[slot] for slot in old], grow_old=True)

    def drop(self, leaving: Sequence[Id]) -> Moves | None:
        """Do what `erase` does, within a change that has begun."""
        for id in leaving:
            if id not in self._erased:
                self.note(self._erased.pop, id, None)
                self._erased[id] = None
        self._reserve(leaving)
        return self.release(leaving)

    def release(self, leaving: Sequence[Id]) -> Moves | None:
        """Let examples leave that may come again, within a change that has begun."""
        self._discard(leaving)
        if self._descriptions is not None:
            self._descriptions.keep(self._slots.slot_of)
        self._by_task = None
        _, self.moves = self._slots.settle(0)
        return self.moves

    # The decision on each example; O(1) for each.

    def _numbered(self, ids: list[Id] | None, count: int) -> Sequence[Id]:
        """Return the ids, numbers that were never used where none are given."""
        if ids is None:
            self._next_id += count
            numbers = range(self._next_id - count, self._next_id)
            self._slots.expect_up_to(self._next_id - 1)
            return numbers
        self._slots.expect(ids)
        self._reserve(ids)
        return ids

    def _reserve(self, ids: Sequence[Id]) -> None:
        """Keep the numbers to come clear of these ids."""
        self._next_id = max([self._next_id, *(id + 1 for id in ids if isinstance(id, int))])

    def _new(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Pass over what was erased, update what is held, and yield the rest, one by one."""
        for candidate in candidates:
            if candidate[1] not in self._erased and not self._update(candidate):
                yield candidate

    def _update(self, candidate: Candidate) -> bool:
        """Put the candidate where its id is held; False if it is to be offered as a new one."""
        _, id, task, label, _, _ = candidate
        slot = self._slots.slot_of.get(id)
        if slot is None:
            return False
        if self._key_at(slot) == self._key(task, label):
            self._slots.replace(slot, candidate)
            if self._max_bytes is not None:  # it may have come back larger
                self._fit_bytes(self._max_bytes)
            return True
        self._discard([id])
        return False

    def _offer(self, candidates: Iterable[Candidate]) -> None:
        """Keep each candidate or not, one after another, as the policy and its chance decide."""
        slots, groups, by_class = self._slots, self._groups, self.policy.by_class
        journal, find = self.journal, groups.by_key.get
        for candidate in candidates:
            _, id, task, label, _, chance = candidate
            key = (task, label) if by_class else _POOL
            group = find(key) or groups.insert(key)
            if len(group.members) < group.limit and self._make_room(group, chance):
                groups.grow(key, id)
                slots.append(candidate)
                if self._max_bytes is not None:
                    self._fit_bytes(self._max_bytes)
                continue
            leaving = group.exchange(id, chance, journal)
            if leaving is None:
                continue
            self._replace(leaving, candidate)
            if self._max_bytes is not None:
                self._fit_bytes(self._max_bytes)

    def _replace(self, leaving: Id, candidate: Candidate) -> None:
        """Let a candidate take the place of an example that leaves."""
        slots = self._slots
        slot = slots.slot_of[leaving]
        if slot >= slots.sealed:
            slots.replace(slot, candidate)
        else:  # the slot may be sampled already, the candidate not before its task has ended
            slots.remove(slot)
            slots.append(candidate)

    def _fit_bytes(self, most: int) -> None:
        """Let examples of the largest group go until the sizes of all that are held fit."""
        while self._slots.nbytes > most:
            self._drawn += 1  # first: an interruption never leaves fewer counted than were drawn
            chance = self._generator.random()
            self._slots.remove(self._slots.slot_of[self._groups.evict(chance)])

    def _make_room(self, group: Group, chance: float) -> bool:
        """Tell whether the group may grow; in a full memory, at a larger one's expense."""
        if self._max_examples is None or len(self._slots.ids) < self._max_examples:
            return True
        if len(group.members) == self._groups.largest:
            return False
        self._slots.remove(self._slots.slot_of[self._groups.evict(chance)])
        return True

    def _discard(self, ids: Iterable[Id], *, grow_old: bool = False) -> None:
        """Drop those of the ids that are held; O(the sizes of their groups)."""
        leaving: dict[Key, set[Id]] = {}
        for id in ids:
            slot = self._slots.slot_of.get(id)
            if slot is not None:
                leaving.setdefault(self._key_at(slot), set()).add(id)
                self._slots.remove(slot)
        for key, members in leaving.items():
            self._groups.discard(key, members, grow_old=grow_old)

    def _key(self, task: int, label: int) -> Key:
        """Return the group of a task and a class."""
        return (task, label) if self.policy.by_class else _POOL

    def _key_at(self, slot: int) -> Key:
        """Return the group of the example in a slot."""
        return self._slots.key(slot) if self.policy.by_class else _POOL

    # Copies and states.

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of everything: it is read later than it is asked for."""
        with self.lock:
            return copy.deepcopy(self._parts())

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_filing" in state:
            state = _from_first_pickles(state)
        vars(self).update(state, lock=new_lock())

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        """Return a copy of everything as it is between two changes."""
        with self.lock:
            return deep_copy(self, self._parts(), memo)

    def _parts(self) -> dict[str, Any]:
        """Return all but the lock: that of a copy is its own."""
        self.finish()
        return {name: part for name, part in vars(self).items() if name != "lock"}

    def state_dict(self) -> dict[str, Any]:
        """Return everything, the generator included, as arrays and JSON values."""
        with self.lock:
            self.finish()
            return {
                "policy": policy_to_json(self.policy),
                "generator": self._generator.bit_generator.state,
                "next_id": self._next_id,
                "erased": to_bytes(list(self._erased)),
                "filing": self._held(),  # the key of all formats so far
                **self._ages(),
            }

    def _ages(self) -> State:
        """Return what a state holds only where examples grow old."""
        if self._age is None:
            return {}
        return {"max_age": self._age.most, "age_by": self._age.by, "newest": self._newest}

    def _held(self) -> State:
        """Return what is held by slot, and the groups in the order that decides on evictions."""
        slots, rows, members = self._slots, [], []
        for (task, label), group in self._groups.items():
            rows.append((task, label, group.limit, group.seen, len(group.members)))
            members += [slots.slot_of[id] for id in group.members]
        tags = {slot: dict(own) for slot, own in enumerate(slots.tags) if own is not None}
        described = self._descriptions
        return {
            **({} if described is None else {"described": described.by_slot(slots.ids)}),
            "max_examples": self._max_examples,
            "sealed": slots.sealed,
            "tasks": slots.tasks.copy(),
            "labels": slots.labels.copy(),
            "ids": to_bytes(slots.ids),
            "tags": to_bytes(tags),
            "groups": np.array(rows, np.int64).reshape(-1, 5),
            "members": np.array(members, np.int64),
            **{name: column.copy() for name, column in slots.measured_columns().items()},
            **({} if self._max_bytes is None else {"max_bytes": self._max_bytes}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of the same policy, bit for bit."""
        policy = self.policy
        if state["policy"] != policy_to_json(policy):
            other = policy_in_words(state["policy"])
            raise EngramError(f"The state is of {other}; this memory's policy is {policy}.")
        loaded = Ledger(
            policy,
            max_examples=state["filing"]["max_examples"],
            max_age=state.get("max_age"),
            age_by=state.get("age_by", "task"),
        )
        loaded._load_slots(state["filing"])
        if loaded._age is not None:
            loaded._load_newest(loaded._age, state["newest"])
        loaded._load_groups(state["filing"])
        loaded.journal.clear()
        erased = stored_ids(from_bytes(state["erased"]))
        if not loaded._slots.slot_of.keys().isdisjoint(erased):
            raise EngramError("The state holds examples that were erased.")
        loaded._erased = dict.fromkeys(erased)
        loaded._generator.bit_generator.state = state["generator"]
        loaded._seeded = loaded._generator.bit_generator.state
        loaded._next_id = _stored_next_id(state["next_id"], [*loaded.ids, *erased])
        # In one step, so that an interruption never leaves a part of it.
        vars(self).update(loaded._parts())

    def _load_slots(self, state: Mapping[str, Any]) -> None:
        """Take in what `_held` gave by slot, or refuse what no ledger gives."""
        slots, policy, sealed = self._slots, self.policy, state["sealed"]
        ids = stored_ids(from_bytes(state["ids"]))
        tasks, labels = (_column(state, name, len(ids)).tolist() for name in ("tasks", "labels"))
        refuse_unless("ids", len(set(ids)) == len(ids) <= (self.capacity or len(ids)))
        refuse_unless("tasks", tasks.count(NONE) in (0, len(ids)))
        refuse_unless("labels", labels.count(NONE) in ((0,) if policy.by_class else (0, len(ids))))
        refuse_unless("sealed", type(sealed) is int and 0 <= sealed <= len(ids))
        refuse_unless("sealed", not (sealed and policy.include_current))
        tags = _stored_tags(from_bytes(state["tags"]), len(ids))
        measures = {name: _measured(state, name, len(ids)) for name in MEASURES if name in state}
        slots.expect_measures(measures, len(ids))
        max_bytes = state.get("max_bytes")
        if max_bytes is not None:
            positive("max_bytes", max_bytes)
            refuse_unless("sizes", not ids or sum(measures["sizes"]) <= max_bytes)
            self._max_bytes = max_bytes
        slots.expect(ids)
        for slot, (id, task, label) in enumerate(zip(ids, tasks, labels, strict=True)):
            slots.append((slot, id, task, label, tags.get(slot), 0.0))
        if self._descriptions is not None:
            refuse_unless("described", self._descriptions.restore(ids, state["described"]))
        slots.settle(len(ids))
        slots.sealed = sealed

    def _load_newest(self, age: Age, newest: object) -> None:
        """Take in the newest task or time that came, if nothing held is too old beside it."""
        held = age.of_slots(self._slots)
        if newest is None:
            refuse_unless("newest", not len(self))
            return
        number = isinstance(newest, int | float) and math.isfinite(newest)
        refuse_unless("newest", number and len(held) == len(self))
        refuse_unless("newest", not age.too_old(held, newest).any() and not (held > newest).any())  # type: ignore[arg-type]
        self._newest = newest  # type: ignore[assignment]

    def _load_groups(self, state: Mapping[str, Any]) -> None:
        """Take in the groups, each example in the one that is its own."""
        ids, groups = self._slots.ids, state["groups"]
        members = _column(state, "members", len(ids)).tolist()
        refuse_unless("groups", groups.dtype == np.int64 and groups.shape[1:] == (5,))
        refuse_unless("members", sorted(members) == [*range(len(ids))])
        start = 0
        for task, label, limit, seen, size in groups.tolist():
            own, key = members[start : start + max(size, 0)], (task, label)
            start += len(own)
            fits = len(own) == size <= min(limit, seen) and limit <= self._groups.limit
            pooled = self.policy.by_class or key == _POOL
            refuse_unless("groups", fits and pooled and key not in self._groups.by_key)
            refuse_unless("members", all(self._key_at(slot) == key for slot in own))
            self._groups.restore(key, limit, seen, [ids[slot] for slot in own])
        refuse_unless("groups", start == len(ids))


def _column(state: Mapping[str, Any], name: str, count: int) -> NDArray[np.int64]:
    """Return an array of so many integers."""
    column = state[name]
    right = isinstance(column, np.ndarray) and column.dtype == np.int64
    refuse_unless(name, right and column.shape == (count,))
    return column  # type: ignore[no-any-return]


def _measured(state: Mapping[str, Any], name: str, count: int) -> list[float]:
    """Return an array of so many measures."""
    column = state[name]
    right = isinstance(column, np.ndarray) and column.dtype == np.float64
    refuse_unless(name, right and column.shape == (count,))
    usual = np.isfinite(column)
    if name == "weights":
        usual &= column > 0
    elif name == "times":
        usual |= np.isnan(column)
    else:
        usual &= (column >= 0) & (column < 2**53) & (column % 1 == 0)
    refuse_unless(name, bool(usual.all()))
    own: list[float] = column.tolist()
    return own


def _slots_by(values: Indices) -> dict[int, Indices]:
    """Return the slots of each value, in order."""
    order = np.argsort(values, kind="stable")
    names, starts = np.unique(values[order], return_index=True)
    parts = np.split(order, starts[1:])
    return dict(zip(names.tolist(), parts, strict=False))


def _stored_tags(tags: Any, count: int) -> dict[int, Tags]:  # noqa: ANN401  # JSON
    refuse_unless("tags", isinstance(tags, dict) and tags.keys() <= set(map(str, range(count))))
    return {int(slot): checked_tags(own) for slot, own in tags.items()}


def _stored_next_id(number: object, ids: Iterable[Id]) -> int:
    """Return the number that the next example gets, which is behind all that were used."""
    taken = max([-1, *(id for id in ids if isinstance(id, int))])
    if type(number) is not int or number <= taken or number.bit_length() > STORED_BITS:
        raise EngramError("The state's next_id is not the number after the last one used.")
    return number


def _from_first_pickles(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a ledger has in a pickle of 0.1.0 as it is now; see `old_pickles`."""
    state = dict(state)
    held = vars(state.pop("_filing"))
    state["journal"] = held["journal"]
    slots: SlotTable = held["slots"]
    slots.columns = vars(slots).pop("table")
    return {
        **state,
        "_slots": slots,
        "_groups": held["groups"],
        "_max_examples": held["max_examples"],
    }
