"""Examples in rows of their own."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory._allocation import allocate
from engram.memory._dtypes import as_rows, check_on_device, row_dtype
from engram.memory._lock import deep_copy, new_lock
from engram.memory._moves import Moves
from engram.memory._places import Places
from engram.memory._structure import (
    Batch,
    Structure,
    check_dense,
    check_examples,
    check_kinds,
    check_lengths,
    describe,
    example_nbytes,
    flatten,
    own_labels,
    rebuild,
)

Staged: TypeAlias = list[tuple[Tensor, Tensor, Tensor]]
"""Rows of which the places are to be overwritten with values, one after another."""


class TensorStorage:
    """Rows of tensors: a batch of any structure, each tensor with its own shape and dtype.

    The first batch fixes the structure, the shapes, the dtypes and, unless one is given, the
    device. A named tuple comes back as a tuple, any mapping as a dict.

    >>> storage = TensorStorage()
    >>> batch = {"image": torch.zeros(2, 3), "label": torch.tensor([4, 5])}
    >>> storage.resize(10, batch)
    >>> storage.nbytes == 10 * (3 * 4 + 8)
    True
    """

    kind = "tensors"

    def __init__(self, device: torch.device | str | None = None) -> None:
        try:
            self.device = None if device is None else torch.device(device)
            if self.device is not None and self.device.type == "meta":  # which holds nothing
                raise ValueError
        except (RuntimeError, TypeError, ValueError):
            raise EngramError(
                f"device is {shown(device)}; give one such as 'cpu' or 'cuda:0'."
            ) from None
        self.lock = new_lock()
        """Held by a memory that reads or changes the storage, and by who copies it."""
        self.rows = 0
        """How many rows are allocated."""
        self._structure: Structure | None = None
        self._rows: list[Tensor] = []
        self.examples: list[tuple[torch.Size, torch.dtype]] = []
        """The shapes and dtypes of an example's tensors; another list for another kind of batch."""
        self._accepted: list[tuple[Any, ...]] | None = None  # what was checked last
        self._by_view = False  # whether some rows are of another dtype than their examples
        self._on_host = True
        self._places = Places()

    @property
    def nbytes(self) -> int:
        """The bytes of all rows allocated."""
        return sum(tensor.nbytes for tensor in self._rows)

    def check(self, batch: object) -> list[Tensor]:
        """Return the batch's tensors, or refuse a batch that does not fit the first one."""
        tensors = flatten(describe(batch) if self._structure is None else self._structure, batch)
        try:
            kinds = [
                (type(each), each.shape, each.dtype, each.layout, each.is_meta) for each in tensors
            ]
        except RuntimeError:  # a nested tensor has no shape
            kinds = []
        if kinds == self._accepted:
            return tensors
        check_kinds(tensors)
        check_lengths(tensors)
        check_examples(tensors, self.examples)
        check_dense(tensors)
        if self.examples:
            self._accepted = kinds
        else:
            for tensor in tensors:
                check_on_device(tensor.dtype, self.home(tensors))
        return tensors

    def labels(self, batch: object) -> Tensor | None:
        """Return the labels that a batch itself holds: a tuple's last tensor, if it can be that."""
        return own_labels(batch)

    def values(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors that `read` will make examples of, given what `check` returned."""
        return tensors

    def home(self, tensors: list[Tensor]) -> torch.device:
        """Return the device of the rows, which the first batch decides unless one was given."""
        return self.device or tensors[0].device

    def resize(self, rows: int, batch: object) -> None:
        """Allocate this many rows for examples such as the batch's, and keep what is there."""
        tensors = self.check(batch)
        examples = self.examples or [(tensor.shape[1:], tensor.dtype) for tensor in tensors]
        device = self.home(tensors)
        try:
            new = [allocate((rows, *shape), row_dtype(dtype), device) for shape, dtype in examples]
        except (MemoryError, RuntimeError, TypeError, ValueError, AssertionError) as error:
            # No room, no such device, or one without this dtype.
            size = rows * example_nbytes(tensors)
            raise EngramError(
                f"The memory cannot allocate {rows:,} rows ({size:,} bytes) on {device}; "
                "give it a smaller capacity or budget, or another device."
            ) from error
        for source, target in zip(self._rows, new, strict=False):  # at first there are none
            target[: len(source)] = source
        self._structure = self._structure or describe(batch)
        self.examples = examples
        self._by_view = any(row_dtype(dtype) != dtype for _, dtype in examples)
        self.device, self.rows, self._rows = device, rows, new
        self._on_host = device.type == "cpu"

    def stage(
        self,
        slots: list[int],
        tensors: list[Tensor],
        moves: Moves | None = None,
        valid: Tensor | None = None,
    ) -> Staged:
        """Return what writes each example to its slot (-1 is nowhere), after the moves.

        Nothing has changed yet. What may fail is done here: `commit` only overwrites. Unless the
        flag ``valid`` is true, which is on the storage's device and is not read, it overwrites rows
        with what they hold now.
        """
        staged = [] if moves is None else self._staged_moves(moves)
        staged += self._staged_writes(slots, tensors)
        if valid is None:
            return staged
        return [
            (row, target, torch.where(valid, values, row.index_select(0, target)))
            for row, target, values in staged
        ]

    def _staged_writes(self, slots: list[int], tensors: list[Tensor]) -> Staged:
        kept = [place for place, slot in enumerate(slots) if slot >= 0] if -1 in slots else slots
        if not kept:
            return []
        if self._by_view:
            tensors = [as_rows(tensor.detach()) for tensor in tensors]
        if kept is not slots:
            slots = [slots[place] for place in kept]
            chosen = torch.frombuffer(array("q", kept), dtype=torch.int64)
            tensors = [tensor.index_select(0, _sent(chosen, tensor.device)) for tensor in tensors]
        target = self.place(self._places.fill(slots))
        staged = []
        for row, tensor in zip(self._rows, tensors, strict=True):
            own = tensor if self._on_host and tensor.is_cpu else tensor.to(self.device)
            staged.append((row, target, own.detach() if own.requires_grad else own))
        return staged

    def _staged_moves(self, moves: Moves) -> Staged:
        """Return what moves rows, and overwrites the rows that are free now with zeros."""
        source, target = (self.place(torch.from_numpy(slots)) for slots in moves[:2])
        length = moves.length
        free = self.place(torch.arange(length, max(length, moves.previous), device="cpu"))
        staged = []
        for row in self._rows:
            staged.append((row, target, row.index_select(0, source)))
            staged.append((row, free, row.new_zeros(()).expand(len(free), *row.shape[1:])))
        return staged

    def commit(self, staged: Staged) -> None:
        """Overwrite what is staged; after an interruption it is done whole by doing it again."""
        for row, target, values in staged:
            row.index_copy_(0, target, values)

    def in_use(self, written: Iterable[tuple[Tensor, list[int]]]) -> list[int]:
        """Return the slots, in order, of those of the rows that are this storage's now."""
        own = {id(row) for row in self._rows}
        return sorted({slot for row, slots in written if id(row) in own for slot in slots})

    def place(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the host on the storage's device."""
        return tensor if self._on_host else _sent(tensor, self.device)

    def read(self, slots: Tensor) -> Batch:
        """Return the rows as a batch of the structure that was added."""
        assert self._structure is not None  # a memory reads only what it has written
        rows = [row.index_select(0, slots) for row in self._rows]
        return rebuild(self._structure, iter(self._as_added(rows) if self._by_view else rows))

    def _as_added(self, rows: list[Tensor]) -> list[Tensor]:
        """Return rows in the dtypes of the examples that they hold."""
        return [row.view(dtype) for row, (_, dtype) in zip(rows, self.examples, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of the rows with the rest: it is read later than it is asked for."""
        with self.lock:
            rows = [row.clone() for row in self._rows]
            return {**self._parts(), "_rows": rows, "_places": Places()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=new_lock())

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorStorage:
        """Return a copy of everything as it is between two changes."""
        with self.lock:
            return deep_copy(self, self._parts(), memo)

    def _parts(self) -> dict[str, Any]:
        """Return all but the lock: that of a copy is its own."""
        return {name: part for name, part in vars(self).items() if name != "lock"}

    def state_dict(self, length: int) -> dict[str, Any]:
        """Return the first ``length`` rows (not copied) and their structure."""
        rows = {str(place): row[:length] for place, row in enumerate(self._as_added(self._rows))}
        return {"kind": self.kind, "structure": self._structure, "rows": rows}

    def load_state_dict(self, state: dict[str, Any], rows: int) -> None:
        """Take over the rows and structure, copied into ``rows`` allocated ones."""
        if state["kind"] != self.kind:
            raise EngramError(
                f"The state holds {state['kind']}; this memory's storage holds {self.kind}."
            )
        self.rows, self._rows, self.examples = 0, [], []
        self._structure = self._accepted = None
        if state["structure"] is not None:
            tensors = [state["rows"][str(place)] for place in range(len(state["rows"]))]
            self.resize(rows, rebuild(state["structure"], iter(tensors)))
            for row, tensor in zip(self._rows, tensors, strict=True):
                row[: len(tensor)] = as_rows(tensor)


def _sent(tensor: Tensor, device: torch.device | None) -> Tensor:
    """Return a tensor of numbers of ours on a device, without waiting for the work before it.

    A GPU takes what is not in pinned memory, as these are not, before the call returns.
    """
    return tensor.to(device, non_blocking=device is not None and device.type == "cuda")
