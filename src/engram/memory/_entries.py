"""What is written in a ledger, in changes that can be undone until they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from engram.memory._books import Books
from engram.memory._columns import Incoming
from engram.memory._example import Id
from engram.memory._journal import Journal, undo
from engram.memory._moves import Moves, Offer
from engram.memory._policies import Policy


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
        self._next_id = 0
        self._chances: list[float] = []  # drawn by the change that goes on
        self._erased: dict[Id, None] = {}

    def begin(self) -> Journal:
        """Return the journal of a change; whoever makes it clears the journal, or does `undo`."""
        journal = self._filing.journal
        journal.clear()
        self._chances = []
        journal.append((self._restore, self._next_id))
        self._filing.begin()
        return journal

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make a change of the books alone: all of it or, where it is interrupted, nothing."""
        journal = self.begin()
        try:
            yield
        except BaseException:
            self.undo()
            raise
        journal.clear()

    def note(self, call: Callable[..., object], *arguments: object) -> None:
        """Note a call that undoes what the change is about to do beside the books."""
        self._filing.journal.append((call, *arguments))

    def undo(self) -> None:
        """Go back to where the books were when the change began."""
        undo(self._filing.journal)

    def _restore(self, next_id: int) -> None:
        self._next_id = next_id
        self._by_task = self.moves = None
        if self._chances:  # back by as many draws, which is on by the rest of the period
            draws, self._chances = 2**128 - len(self._chances), []
            self._generator.bit_generator.advance(draws)  # type: ignore[attr-defined]

    def file(self, batch: Incoming) -> list[int]:
        """File what `prepare` has checked; return the slots as `add` does."""
        count = len(batch.tasks)
        chances = [0.0] * count
        if self.policy.uniform:
            chances = self._chances = self._generator.random(count).tolist()
        names = self._names(batch.ids, count)
        filing = self._filing
        columns = zip(range(count), names, batch.tasks, batch.labels, batch.tags, strict=True)
        offers = zip(columns, chances, strict=True)
        filing.offer(offers if batch.ids is None else self._unknown(offers))
        slots, self.moves = filing.slots.settle(count)
        if self.policy.include_current or self.moves is not None:
            self._by_task = None
        return slots

    def _unknown(self, offers: Iterable[Offer]) -> Iterator[Offer]:
        """Pass over what was erased, update what is held, and yield the rest, each in its turn."""
        for newcomer, chance in offers:
            if newcomer[1] not in self._erased and not self._filing.update(newcomer):
                yield newcomer, chance

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

    def _reserve(self, ids: list[Id]) -> None:
        """Keep the numbers to come clear of these ids."""
        self._next_id = max([self._next_id, *(id + 1 for id in ids if isinstance(id, int))])

    def drop(self, leaving: list[Id]) -> Moves | None:
        """Do what `erase` does, within a change that has begun."""
        for id in leaving:
            if id not in self._erased:
                self.note(self._erased.pop, id, None)
                self._erased[id] = None
        self._reserve(leaving)
        self._filing.discard(leaving)
        self._by_task = None
        _, self.moves = self._filing.slots.settle(0)
        return self.moves
