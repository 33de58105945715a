"""What its owner may ask of a memory: what it holds, and to erase some of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import torch

from engram.errors import EngramError, shown
from engram.memory._columns import Ids, Integers, integers
from engram.memory._example import Erasure, Example, Sample, Where
from engram.memory._holding import Holding


class Governing(Holding):
    """What a `Memory` does for those who answer for it."""

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors that the storage has allocated."""
        return self.storage.nbytes

    def examples(self) -> Iterator[Example]:
        """Iterate over the metadata of everything that is held now, in slot order."""
        with self._lock:
            return iter(list(self._ledger.examples()))

    def read(self, slots: Integers) -> Sample:
        """Return the examples in these slots, available or not."""
        wanted = np.array(integers("slots", slots, None), np.int64)
        with self._lock:
            if not len(self) or ((wanted < 0) | (wanted >= len(self))).any():
                raise EngramError(
                    f"The memory holds the slots 0 to {len(self) - 1}; not {shown(slots)}."
                )
            return self._read(torch.from_numpy(wanted))

    def erase(
        self, ids: Ids | None = None, where: Where | None = None, reason: str = ""
    ) -> Erasure:
        """Erase examples for good, by id or by metadata, and return the record of it.

        ``where`` is a function of an `Example`, or the values its fields must have:
        ``{"task": 3, "label": 7, "tags": {"customer": "x"}}``. An id that is not held is recorded
        too, and never enters. What interrupts it finds all of it erased and recorded, or nothing.
        """
        if not isinstance(reason, str):  # it is saved with the memory
            raise EngramError(f"reason is {shown(reason)}; give a string.")
        with self._lock:
            leaving = self._ledger.named(ids, where)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            record = Erasure(when, tuple(leaving), reason)
            self._erase(record)
            return record

    def _erase(self, record: Erasure) -> None:
        """Let examples leave the books, record it, and clear their rows."""
        ledger, storage, staged = self._ledger, self.storage, None
        try:
            ledger.begin()
            moves = ledger.drop(record.ids)
            ledger.note(self.erasures.__delitem__, slice(len(self.erasures), None))
            self.erasures.append(record)
            staged = storage.stage([], [], moves)
            storage.commit(staged)
            ledger.made()
        except BaseException:
            self._make_whole(staged)
            raise
