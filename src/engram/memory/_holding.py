"""A ledger and a storage in step: examples go in, samples come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.memory._columns import Ids, Incoming, Integers
from engram.memory._draws import Draws, draw
from engram.memory._example import Erasure, Sample, Tags
from engram.memory._ledger import Ledger
from engram.memory._policies import Policy, natural, positive
from engram.memory._slots import Indices
from engram.memory._structure import Batch, example_nbytes
from engram.memory._tensor_storage import TensorStorage


class Prepared(NamedTuple):
    """A batch that `Holding.prepare` has found no fault with."""

    batch: Batch
    tensors: list[Tensor]
    metadata: Incoming

    @property
    def size(self) -> int:
        """How many examples there are."""
        return len(self.metadata.tasks)


class Holding:
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
        self.policy = policy
        self.storage = TensorStorage() if storage is None else storage
        self.max_bytes = max_bytes
        self.erasures: list[Erasure] = []
        self._ledger = Ledger(policy, max_examples=max_examples, seed=seed)
        self._draws = Draws(natural("seed", seed))
        self._table: Indices | None = None
        self._columns: list[Tensor] = []  # the table's, as tensors

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def available(self) -> int:
        """How many examples may be sampled: all held, or those of the tasks that have ended."""
        return self._ledger.available

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
        tensors = self.storage.check(batch)
        labels = self.storage.labels(batch) if labels is None else labels
        metadata = self._ledger.prepare(tasks, labels, ids, tags, count=tensors[0].shape[0])
        if self.max_bytes is not None and not self.storage.rows:
            size = example_nbytes(tensors)
            if size > self.max_bytes:
                raise EngramError(
                    f"max_bytes is {self.max_bytes}, less than the {size} bytes of one example."
                )
        return Prepared(batch, tensors, metadata)

    def file(self, prepared: Prepared) -> None:
        """Add what `prepare` has checked."""
        if not prepared.size:
            return
        if len(self._ledger) + prepared.size > self.storage.rows:
            self._make_room(prepared)
        slots = self._ledger.file(prepared.metadata)
        if self._ledger.moves is not None:
            self.storage.move(self._ledger.moves)
        self.storage.write(slots, prepared.tensors)

    def _make_room(self, prepared: Prepared) -> None:
        """Allocate rows before the books change: running out of memory leaves them as they were."""
        rows, needed = self.storage.rows, len(self._ledger) + prepared.size
        if rows and rows == self._ledger.capacity:
            return
        if self.max_bytes is not None and not rows:
            self._ledger.restrict(self.max_bytes // max(example_nbytes(prepared.tensors), 1))
        rows = self._ledger.rows(max(needed, 2 * rows), at_once=self.max_bytes is not None)
        self.storage.resize(rows, prepared.batch)

    def end_task(self) -> None:
        """Seal: everything held may be sampled from now on."""
        self._ledger.end_task()

    @overload
    def sample(self, count: int, by_task: Literal[False] = False) -> Sample | None: ...
    @overload
    def sample(self, count: int, by_task: Literal[True]) -> dict[int, Sample] | None: ...
    def sample(self, count: int, by_task: bool = False) -> Sample | dict[int, Sample] | None:
        """Return ``count`` examples drawn without replacement, all of them if there are fewer.

        With ``by_task``: up to ``count`` of each task. None where nothing is available.
        """
        if type(count) is not int or count < 0:
            count = natural("count", count)
        available = self._ledger.available
        if not available:
            return None
        if not by_task:
            return self._read(self._draws.take(count, available))
        generator = self._draws.generator
        return {
            task: self._read(torch.from_numpy(slots[draw(len(slots), count, generator)]))
            for task, slots in self._ledger.slots_by_task().items()
        }

    def _read(self, slots: Tensor) -> Sample:
        ledger, place = self._ledger, self.storage.place
        if self._table is not ledger.table:
            self._table = ledger.table
            self._columns = [torch.from_numpy(column) for column in self._table]
        batch = self.storage.read(place(slots))
        tasks, labels, numbers = (column.index_select(0, slots) for column in self._columns)
        return Sample(
            batch,
            place(tasks) if ledger.has_tasks else None,
            place(labels) if ledger.has_labels else None,
            numbers.tolist() if ledger.numeric else [ledger.ids[slot] for slot in slots.tolist()],
        )
