"""The episodic memory, and how it lasts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from engram.errors import EngramError, shown
from engram.memory import _file
from engram.memory._draws import Draws
from engram.memory._example import Erasure
from engram.memory._governing import Governing
from engram.memory._ledger import Ledger
from engram.memory._policies import policy_from_json, positive
from engram.memory._state import from_bytes, to_arrays, to_bytes, to_tensors, trusting_nobody
from engram.memory._tensor_storage import TensorStorage


class Memory(Governing):
    """Examples of the past, kept by a policy in a storage (`TensorStorage`), within a budget.

    ``max_examples`` and ``max_bytes`` bound what is held; the bytes are those of the storage's
    tensors. A pool (`Reservoir`, `Fifo`) and a budget in bytes are allocated in full by the first
    batch, so that growing never needs old rows beside new ones; other rows grow geometrically.

    An example that was erased is gone: its row is overwritten, its id never enters again, and the
    record of it, in ``erasures``, is saved with the memory.

    Threads may share a memory. Whatever interrupts a change of it, Ctrl-C as well as a lack of
    memory, finds it as it was before or as it is after.

    >>> from engram.memory import Reservoir
    >>> memory = Memory(Reservoir(capacity=100), max_bytes=640)
    >>> memory.add((torch.zeros(30, 14), torch.zeros(30, dtype=torch.int64)))
    >>> len(memory), memory.nbytes
    (10, 640)
    >>> sample = memory.sample(4)
    >>> sample.batch[0].shape, sample.labels
    (torch.Size([4, 14]), tensor([0, 0, 0, 0]))
    >>> memory.erase(ids=sample.ids, reason="withdrawn").reason, len(memory)
    ('withdrawn', 6)
    """

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything as tensors and JSON values, the generators included."""
        with self._lock:
            state = self._state()
            rows = state["storage"]["rows"]
            rows.update({place: tensor.clone() for place, tensor in rows.items()})
            return state

    def _state(self) -> dict[str, Any]:
        """Return `state_dict` with the storage's own rows: for a file, they need no copy."""
        return {
            "max_bytes": self.max_bytes,
            "draws": to_tensors(self._draws.state_dict()),
            "erasures": torch.from_numpy(to_bytes(self.erasures)),
            "ledger": to_tensors(self._ledger.state_dict()),
            "storage": self.storage.state_dict(len(self)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of the same policy and kind of storage, bit for bit."""
        parts = {"max_bytes", "draws", "erasures", "ledger", "storage"}
        if not isinstance(state, Mapping) or state.keys() != parts:
            held = [*state] if isinstance(state, Mapping) else shown(state)
            raise EngramError(f"A memory's state holds {sorted(parts)}, and this one {held}.")
        with trusting_nobody():
            ledger, draws = Ledger(self.policy), Draws(0)
            ledger.load_state_dict(to_arrays(state["ledger"]))
            draws.load_state_dict(to_arrays(state["draws"]))
            records = from_bytes(state["erasures"].cpu().numpy())
            erasures = [Erasure(when, tuple(ids), reason) for when, ids, reason in records]
            books = ledger, draws, erasures, state["max_bytes"]
            with self._lock:
                before = dict(vars(self.storage))
                try:
                    self._take_over(state, ledger)
                    self._ledger, self._draws, self.erasures, self.max_bytes = books
                except BaseException:
                    vars(self.storage).update(before)
                    raise

    def _take_over(self, state: Mapping[str, Any], ledger: Ledger) -> None:
        """Fill the storage with as many rows as the ledger knows."""
        max_bytes, stored = state["max_bytes"], state["storage"]
        if max_bytes is not None:
            positive("max_bytes", max_bytes)
        lengths = {len(rows) for rows in stored["rows"].values()}
        shapeless = not lengths or stored["structure"] is None
        if lengths - {len(ledger)} or (len(ledger) and shapeless):
            raise EngramError(f"The state has other rows than those of {len(ledger)} examples.")
        rows = ledger.rows(len(ledger), at_once=max_bytes is not None)
        self.storage.load_state_dict(stored, rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file; a failure leaves an older file as it was.

        An `IndexStorage` saves its indices, not the data.
        """
        with self._lock:  # no row may change between the checksum and the writing
            _file.write(path, self._state())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: torch.device | str | None = None,
        *,
        storage: TensorStorage | None = None,
    ) -> Memory:
        """Return the memory that `save` wrote; it goes on as the saved one would have, bit for bit.

        ``device`` is where the tensors go. A memory of indices needs ``storage``, an `IndexStorage`
        of the same data.
        """
        with trusting_nobody():
            state = _file.read(path)
            if state["storage"]["kind"] == "indices" and storage is None:
                raise EngramError(
                    f"The memory {path} holds indices into data; give storage=IndexStorage(data)."
                )
            policy = policy_from_json(state["ledger"]["policy"])
            memory = cls(policy, TensorStorage(device) if storage is None else storage)
            memory.load_state_dict(state)
            return memory
