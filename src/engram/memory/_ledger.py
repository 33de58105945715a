"""A policy at work: which of the incoming examples are kept, and in which slots."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engram.errors import EngramError
from engram.memory._columns import Ids, Integers, stored_identities
from engram.memory._entries import Entries
from engram.memory._example import Tags, Where
from engram.memory._journal import refuse_within
from engram.memory._lock import deep_copy, new_lock
from engram.memory._moves import Moves
from engram.memory._policies import (
    Policy,
    check_policy,
    natural,
    policy_to_json,
    positive,
    say_policy,
)
from engram.memory._state import from_bytes, load_filing, load_next_id, save_filing, to_bytes
from engram.memory._table import Indices


class Ledger(Entries):
    """The books of a memory: ids, tasks, labels and tags by slot. It never sees a tensor.

    Slots 0..len-1 are taken, and those below `available` may be sampled. With ``max_examples`` a
    policy by class makes room by giving up an example of the largest (task, class): its oldest
    (`ClassRing`), or any (`ClassSample`, whose groups so stay uniform samples).

    An id that is held already is updated in place: contents, label, tags. If it comes back as
    another task or class under a policy by class, the old one goes and it is filed anew. Examples
    without ids are numbered in the order in which they come; no number is used twice.

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

    def __init__(self, policy: Policy, *, max_examples: int | None = None, seed: int = 0) -> None:
        check_policy(policy)
        if max_examples is not None:
            positive("max_examples", max_examples)
        super().__init__(policy, max_examples, natural("seed", seed))
        self.lock = new_lock()
        """Held while the books change; a memory makes its storage's lock that of its ledger."""

    def restrict(self, max_examples: int) -> None:
        """Lower the budget; only while nothing is held."""
        self._filing.restrict(max_examples)

    def add(
        self,
        tasks: int | Integers | None,
        labels: Integers | None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
        *,
        count: int | None = None,
    ) -> Indices:
        """Return each example's slot, -1 where it was not kept or a later one of the batch took it.

        ``tasks`` may be one integer for all. ``count`` is needed only where nothing else tells how
        many examples there are. A storage follows `moves` before it writes.
        """
        with self.lock:
            self.finish()
            batch = self.prepare(tasks, labels, ids, tags, count=count)
            return self.change(lambda: np.array(self.file(batch), np.int64))

    def end_task(self) -> None:
        """Seal: everything held may be sampled from now on."""
        if not self.policy.include_current:
            with self.lock:
                self.finish()
                self._by_task = None  # first: an interruption never leaves it behind
                self._filing.slots.sealed = len(self)

    def erase(self, ids: Ids | None = None, where: Where | None = None) -> Moves | None:
        """Drop these for good: their ids, held or not, never enter again.

        Returns what a storage has to move and to clear; None if nothing was held.
        """
        with self.lock:
            self.finish()
            leaving = self.named(ids, where)
            return self.change(lambda: self.drop(leaving))

    def finish(self) -> None:
        """Finish the undoing of a change, if that was interrupted as well."""
        if self.journal:
            refuse_within(self, Ledger.change, Ledger.finish)
            self.undo()

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of everything: it is read later than it is asked for."""
        with self.lock:
            return copy.deepcopy(self._parts())

    def __setstate__(self, state: dict[str, Any]) -> None:
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
                "filing": save_filing(self._filing),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of the same policy, bit for bit."""
        policy = self.policy
        if state["policy"] != policy_to_json(policy):
            told = say_policy(state["policy"])
            raise EngramError(f"The state is of {told}; this memory's policy is {policy}.")
        filing = load_filing(policy, state["filing"])
        erased = stored_identities(from_bytes(state["erased"]))
        if not filing.slots.slot_of.keys().isdisjoint(erased):
            raise EngramError("The state holds examples that were erased.")
        generator = np.random.default_rng()
        generator.bit_generator.state = state["generator"]
        # In one step, so that an interruption never leaves a part of it.
        vars(self).update(
            _filing=filing,
            journal=filing.journal,
            _generator=generator,
            _seeded=generator.bit_generator.state,
            _drawn=0,
            _next_id=load_next_id(state["next_id"], [*filing.slots.ids, *erased]),
            _erased=dict.fromkeys(erased),
            _by_task=None,
            moves=None,
        )
