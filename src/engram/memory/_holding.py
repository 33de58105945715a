"""A ledger and a storage in step: what goes into a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from engram.errors import EngramError
from engram.memory._columns import Ids, Incoming, Integers
from engram.memory._example import Erasure, Tags
from engram.memory._ledger import Ledger
from engram.memory._policies import Policy, positive
from engram.memory._sampling import Sampling
from engram.memory._structure import Batch, example_nbytes
from engram.memory._tensor_storage import Staged, TensorStorage


class Prepared(NamedTuple):
    """A batch that `Holding.prepare` has found no fault with."""

    batch: Batch
    tensors: list[Tensor]
    metadata: Incoming
    size: int  # how many examples there are
    books: Ledger | None  # with which it agrees; None if they were empty


def _check_budget(max_bytes: int, nbytes: int) -> None:
    if nbytes > max_bytes:
        raise EngramError(f"max_bytes is {max_bytes}, less than the {nbytes} bytes of one example.")


class Holding(Sampling):
    """What a `Memory` does at every step of a training run."""

    def __init__(
        self,
        policy: Policy,
        storage: TensorStorage | None = None,
        *,
        max_examples: int | None = None,
        max_bytes: int | None = None,
        seed: int = 0,
    ) -> None:
        if max_bytes is not None:
            positive("max_bytes", max_bytes)
        if not isinstance(storage, TensorStorage | None):
            raise EngramError(f"storage is {storage!r}; give one such as TensorStorage().")
        ledger = Ledger(policy, max_examples=max_examples, seed=seed)
        super().__init__(ledger, TensorStorage() if storage is None else storage, seed)
        self.policy = policy
        self.max_bytes = max_bytes
        self.erasures: list[Erasure] = []

    def __len__(self) -> int:
        return len(self._ledger)

    def add(
        self,
        batch: Batch,
        *,
        tasks: int | Integers | None = None,
        labels: Integers | None = None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
    ) -> None:
        """Offer a batch; the policy decides what stays. O(batch), whatever the memory holds.

        ``labels`` are by default a tuple's last tensor, if that is one-dimensional and of integers.
        ``tags`` are JSON scalars by name: one mapping for all, or one for each example. An id that
        is held already is updated, one that was erased is passed over.
        """
        self.file(self.prepare(batch, tasks=tasks, labels=labels, ids=ids, tags=tags))

    def prepare(
        self,
        batch: Batch,
        *,
        tasks: int | Integers | None = None,
        labels: Integers | None = None,
        ids: Ids | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
    ) -> Prepared:
        """Refuse a batch that `add` would refuse, and change nothing; `file` does the rest of it.

        So a training step can check its batch before it is learnt, and remember it afterwards.
        """
        with self._lock:
            tensors = self.storage.check(batch)
            labels = self.storage.labels(batch) if labels is None else labels
            size = tensors[0].shape[0]
            metadata = self._ledger.prepare(tasks, labels, ids, tags, count=size)
            if self.max_bytes is not None and not self.storage.rows:
                _check_budget(self.max_bytes, example_nbytes(tensors))
            books = self._ledger if self._ledger.ids else None
            return Prepared(batch, tensors, metadata, size, books)

    def file(self, prepared: Prepared) -> None:
        """Add what `prepare` has checked: all of it or, where it is interrupted, nothing."""
        if prepared.size:
            with self._lock:
                if prepared.books is not self._ledger:  # another batch may have come first
                    self.storage.check(prepared.batch)
                    self._ledger.check(prepared.metadata)
                ledger, storage, staged = self._ledger, self.storage, None
                try:  # as in `Governing._erase`: a call between them is felt at every step
                    ledger.begin()
                    if len(ledger) + prepared.size > storage.rows:
                        self._make_room(prepared)
                    slots = ledger.file(prepared.metadata)
                    staged = storage.stage(slots, prepared.tensors, ledger.moves)
                    storage.commit(staged)
                    ledger.made()
                except BaseException:
                    self._make_whole(staged)
                    raise

    def _make_whole(self, staged: Staged | None) -> None:
        """Undo a change of the books that was interrupted, or make that of the rows as well."""
        if staged is None:  # no row has changed
            self._ledger.undo()
        else:
            self.storage.commit(staged)
            self._ledger.made()

    def _make_room(self, prepared: Prepared) -> None:
        """Allocate rows before the books change."""
        rows, needed = self.storage.rows, len(self._ledger) + prepared.size
        if rows and rows == self._ledger.capacity:
            return
        self._ledger.note(vars(self.storage).update, dict(vars(self.storage)))
        if self.max_bytes is not None and not rows:
            self._ledger.restrict(self.max_bytes // max(example_nbytes(prepared.tensors), 1))
        rows = self._ledger.rows(max(needed, 2 * rows), at_once=self.max_bytes is not None)
        self.storage.resize(rows, prepared.batch)

    def end_task(self) -> None:
        """Seal: everything held may be sampled from now on."""
        with self._lock:
            self._ledger.end_task()
