"""Examples in rows of their own."""

from __future__ import annotations

from array import array
from typing import Any, TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory._allocation import allocate
from engram.memory._moves import Moves
from engram.memory._places import Places
from engram.memory._structure import (
    Batch,
    Structure,
    check_examples,
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
        self.rows = 0
        """How many rows are allocated."""
        self._structure: Structure | None = None
        self._rows: list[Tensor] = []
        self._examples: list[tuple[torch.Size, torch.dtype]] = []
        self._accepted: list[tuple[torch.Size, torch.dtype, torch.layout, bool]] | None = None
        self._on_host = True
        self._places = Places()

    @property
    def nbytes(self) -> int:
        """The bytes of all rows allocated."""
        return sum(tensor.nbytes for tensor in self._rows)

    def check(self, batch: object) -> list[Tensor]:
        """Return the batch's tensors, or refuse a batch that does not fit the first one."""
        tensors = flatten(describe(batch) if self._structure is None else self._structure, batch)
        kinds = [(each.shape, each.dtype, each.layout, each.is_meta) for each in tensors]
        if kinds == self._accepted:
            return tensors
        check_lengths(tensors)
        check_examples(tensors, self._examples)
        if self._examples:
            self._accepted = kinds
        return tensors

    def labels(self, batch: object) -> Tensor | None:
        """Return the labels that a batch itself holds: a tuple's last tensor, if it can be that."""
        return own_labels(batch)

    def resize(self, rows: int, batch: object) -> None:
        """Allocate this many rows for examples such as the batch's, and keep what is there."""
        old = self._rows or [tensor[:0] for tensor in self.check(batch)]
        device = self.device or old[0].device
        try:
            new = [allocate((rows, *t.shape[1:]), t.dtype, device) for t in old]
        except (MemoryError, RuntimeError, ValueError, AssertionError) as error:
            # No room, or no such device.
            size = rows * example_nbytes(old)
            raise EngramError(
                f"The memory cannot allocate {rows:,} rows ({size:,} bytes) on {device}; "
                "give it a smaller capacity or budget, or another device."
            ) from error
        for source, target in zip(old, new, strict=True):
            target[: len(source)] = source.detach()
        self._structure = self._structure or describe(batch)
        self._examples = [(row.shape[1:], row.dtype) for row in new]
        self.device, self.rows, self._rows = device, rows, new
        self._on_host = device.type == "cpu"

    def stage(self, slots: list[int], tensors: list[Tensor], moves: Moves | None = None) -> Staged:
        """Return what writes each example to its slot (-1 is nowhere), after the moves.

        Nothing has changed yet. What may fail is done here: `commit` only overwrites.
        """
        staged = [] if moves is None else self._staged_moves(moves)
        kept = [place for place, slot in enumerate(slots) if slot >= 0] if -1 in slots else slots
        if not kept:
            return staged
        if kept is not slots:
            slots = [slots[place] for place in kept]
            chosen = torch.frombuffer(array("q", kept), dtype=torch.int64)
            tensors = [tensor.index_select(0, chosen.to(tensor.device)) for tensor in tensors]
        target = self.place(self._places.fill(slots))
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

    def place(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the host on the storage's device."""
        return tensor if self._on_host else tensor.to(self.device)

    def read(self, slots: Tensor) -> Batch:
        """Return the rows as a batch of the structure that was added."""
        assert self._structure is not None  # a memory reads only what it has written
        return rebuild(self._structure, iter([row.index_select(0, slots) for row in self._rows]))

    def state_dict(self, length: int) -> dict[str, Any]:
        """Return the first ``length`` rows (not copied) and their structure."""
        rows = {str(place): row[:length] for place, row in enumerate(self._rows)}
        return {"kind": self.kind, "structure": self._structure, "rows": rows}

    def load_state_dict(self, state: dict[str, Any], rows: int) -> None:
        """Take over the rows and structure, copied into ``rows`` allocated ones."""
        if state["kind"] != self.kind:
            raise EngramError(
                f"The state holds {state['kind']}; this memory's storage holds {self.kind}."
            )
        self.rows, self._rows, self._examples = 0, [], []
        self._structure = self._accepted = None
        if state["structure"] is not None:
            tensors = [state["rows"][str(place)] for place in range(len(state["rows"]))]
            self.resize(rows, rebuild(state["structure"], iter(tensors)))
            for row, tensor in zip(self._rows, tensors, strict=True):
                row[: len(tensor)] = tensor
