"""What is written in a ledger, in changes that can be undone until they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from engram.memory._books import Books
from engram.memory._columns import Incoming
from engram.memory._example import Id
from engram.memory._filing import Facts
from engram.memory._journal import Journal, undo
from engram.memory._moves import Moves, Newcomer
from engram.memory._policies import Policy

Made = TypeVar("Made")


class Entries(Books):
    """The writing side of a `Ledger`: what `begin` and the end of a change stand around."""

    def __init__(self, policy: Policy, max_examples: int | None, seed: int) -> None:
        super().__init__(policy, max_examples)
        self.moves: Moves | None = None
        """What the last `add` asks a storage to move before it writes; as a rule nothing (None).

        Rows move where an example of a finished task makes room for a current one (a full memory,
        a task taken up again), and where an id comes back as another class.
        """
        self._generator = np.random.default_rng((seed, 0))
        self._seeded = self._generator.bit_generator.state
        self._drawn = 0  # chances, since the generator was seeded so
        self._next_id = 0
        self._erased: dict[Id, None] = {}

    def begin(self) -> None:
        """Begin a change, which ends with `made` or with `undo`."""
        filing = self._filing
        if filing.journal:  # the undoing of an earlier change was interrupted as well
            self.undo()
        filing.journal.append((self._restore, self._next_id, self._drawn, filing.facts()))

    def note(self, call: Callable[..., object], *arguments: object) -> None:
        """Note a call that undoes what the change is about to do beside the books."""
        self._filing.journal.append((call, *arguments))

    def noted(self) -> Journal:
        """Return a copy of what undoes the change that has begun."""
        return [*self._filing.journal]

    def made(self) -> None:
        """End a change: what is noted is no longer needed."""
        self._filing.journal.clear()

    def undo(self) -> None:
        """Go back to where the books were when the change began, if one has."""
        undo(self._filing.journal)

    def change(self, write: Callable[[], Made]) -> Made:
        """Make a change of the books alone: all of it or, where it is interrupted, nothing."""
        try:
            self.begin()
            written = write()
            self.made()
        except BaseException:
            self.undo()
            raise
        return written

    def _restore(self, next_id: int, drawn: int, facts: Facts) -> None:
        self._filing.restore(facts)
        self._next_id, self._drawn = next_id, drawn
        self._by_task = self.moves = None
        bits = self._generator.bit_generator
        bits.state = self._seeded
        bits.advance(drawn)  # type: ignore[attr-defined]

    def file(self, batch: Incoming) -> list[int]:
        """File what `prepare` has checked; return the slots as `add` does."""
        count = len(batch.tasks)
        chances = [0.0] * count
        if self.policy.uniform:
            self._drawn += count
            chances = self._generator.random(count).tolist()
        names = self._names(batch.ids, count)
        filing = self._filing
        newcomers = zip(
            range(count), names, batch.tasks, batch.labels, batch.tags, chances, strict=True
        )
        filing.offer(newcomers if batch.ids is None else self._unknown(newcomers))
        slots, self.moves = filing.slots.settle(count)
        if self.policy.include_current or self.moves is not None:
            self._by_task = None
        return slots

    def _unknown(self, newcomers: Iterable[Newcomer]) -> Iterator[Newcomer]:
        """Pass over what was erased, update what is held, and yield the rest, each in its turn."""
        for newcomer in newcomers:
            if newcomer[1] not in self._erased and not self._filing.update(newcomer):
                yield newcomer

    def _names(self, ids: list[Id] | None, count: int) -> Sequence[Id]:
        """Return the ids, numbers that were never used where none are given."""
        if ids is None:
            self._next_id += count
            numbers = range(self._next_id - count, self._next_id)
            self._filing.slots.expect_up_to(self._next_id - 1)
            return numbers
        self._filing.slots.expect(ids)
        self._reserve(ids)
        return ids

    def _reserve(self, ids: Sequence[Id]) -> None:
        """Keep the numbers to come clear of these ids."""
        self._next_id = max([self._next_id, *(id + 1 for id in ids if isinstance(id, int))])

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
        self._filing.discard(leaving)
        self._by_task = None
        _, self.moves = self._filing.slots.settle(0)
        return self.moves
