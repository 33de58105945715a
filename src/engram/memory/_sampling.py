"""What comes out of a memory: samples of what may be sampled."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from engram.memory._draws import Draws, draw
from engram.memory._example import Sample
from engram.memory._ledger import Ledger
from engram.memory._lock import new_lock
from engram.memory._policies import natural
from engram.memory._structure import Batch
from engram.memory._table import Indices
from engram.memory._tensor_storage import TensorStorage

_POOLED = 0  # stands for all tasks together


class Sampling:
    """Draws slots that the ledger has made available, and reads them from the storage.

    One lock is held by whatever reads or changes the memory, so that threads may share it.
    """

    def __init__(self, ledger: Ledger, storage: TensorStorage, seed: int) -> None:
        self._lock = new_lock()
        self.storage = storage
        self._ledger = ledger
        self._draws = Draws(natural("seed", seed))
        self._table: Indices | None = None
        self._views: list[Tensor] = []  # of the table's columns

    def __getstate__(self) -> dict[str, Any]:
        """Leave the views and the lock behind: those of a copy are its own."""
        state = {**vars(self), "_table": None, "_views": []}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=new_lock())

    @property
    def available(self) -> int:
        """How many examples may be sampled: all held, or those of the tasks that have ended."""
        return self._ledger.available

    @overload
    def sample(self, count: int, by_task: Literal[False] = False) -> Sample | None: ...
    @overload
    def sample(self, count: int, by_task: Literal[True]) -> dict[int, Sample] | None: ...
    def sample(self, count: int, by_task: bool = False) -> Sample | dict[int, Sample] | None:
        """Return ``count`` examples drawn without replacement, in a random order.

        All of them, in the order in which they lie, if there are no more. With ``by_task``: up to
        ``count`` of each task. None where nothing is available.
        """
        with self._lock:
            draws = self._draw(count, by_task, in_order=False)
            samples = {task: self._read(slots) for task, slots in draws.items()}
        if by_task:
            return samples or None
        return samples.get(_POOLED)

    def references(
        self, count: int, *, by_task: bool, with_tasks: bool
    ) -> list[tuple[Batch, Tensor | None]]:
        """Return the batches of a `sample`, and their tasks if asked for.

        That is all that a training step looks at; the rest of a sample takes it a fifth longer. As
        it reads each batch in one pass, the examples come in the order in which they lie: so they
        are read a fifth faster.
        """
        place, read = self.storage.place, self.storage.read
        with self._lock:
            with_tasks = with_tasks and self._ledger.has_tasks
            return [
                (
                    read(place(slots)),
                    place(self._columns()[0].index_select(0, slots)) if with_tasks else None,
                )
                for slots in self._draw(count, by_task, in_order=True).values()
            ]

    def _draw(self, count: int, by_task: bool, *, in_order: bool) -> dict[int, Tensor]:
        """Return slots drawn without replacement: of each task, or of all; none of nothing."""
        if type(count) is not int or count < 0:
            count = natural("count", count)
        available = self._ledger.available
        if not available:
            return {}
        if not by_task:
            return {_POOLED: self._draws.take(count, available, in_order=in_order)}
        draws = {
            task: slots[draw(len(slots), count, self._draws.generator, shuffle=True)]
            for task, slots in self._ledger.slots_by_task().items()
        }
        return {
            task: torch.from_numpy(np.sort(slots) if in_order else slots)
            for task, slots in draws.items()
        }

    def _columns(self) -> list[Tensor]:
        """Return the tasks, the labels and the numbers by slot, as tensors on the host."""
        if self._table is not self._ledger.table:
            # The views first: an interruption never leaves those of another table.
            self._views = [torch.from_numpy(column) for column in self._ledger.table]
            self._table = self._ledger.table
        return self._views

    def _read(self, slots: Tensor) -> Sample:
        ledger, place = self._ledger, self.storage.place
        batch = self.storage.read(place(slots))
        tasks, labels, numbers = (column.index_select(0, slots) for column in self._columns())
        return Sample(
            batch,
            place(tasks) if ledger.has_tasks else None,
            place(labels) if ledger.has_labels else None,
            numbers.tolist() if ledger.numeric else [ledger.ids[slot] for slot in slots.tolist()],
        )
