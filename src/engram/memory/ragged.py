"""Columns whose examples differ in length: token ids, series; kept without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.memory.columns import (
    Batch,
    Ragged,
    Structure,
    as_rows,
    check_dense,
    check_kinds,
    check_lengths,
    describe,
    flatten,
    rebuild,
    row_dtype,
)
from engram.memory.slots import Moves
from engram.memory.storage import Staged, TensorStorage

Part: TypeAlias = Any
"""A tensor of a batch, or a `Ragged` of it."""


class RaggedStorage(TensorStorage):
    """Rows of bytes, each as long as its example: for batches in which a column is a `Ragged`.

    A memory that is given no storage takes one by itself when its first batch has such a column.
    Columns of one length are kept in the same way beside it, so ``nbytes`` is exactly what the
    examples held take; Python adds some 100 bytes to each. The bytes are on the host; what is read
    of them is on ``device``.
    """

    kind = "ragged"
    waits_for_flags = True

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__(device)
        self._rows: list[Any] = []  # PackedRows: these, in place of tensors
        self._on_host = True  # the slots, whatever the device

    def check(self, batch: object) -> list[Part]:
        """Return the batch's tensors and `Ragged` columns, or refuse what does not fit."""
        structure = describe(batch) if self._structure is None else self._structure
        parts: list[Part] = flatten(structure, batch, ragged=True)
        values = [part.values if isinstance(part, Ragged) else part for part in parts]
        check_kinds(values)
        check_dense(values)
        check_lengths(
            [part if isinstance(part, Tensor) else torch.empty(len(part)) for part in parts]
        )
        if not all(own.shape[1:].numel() for own in values):
            raise EngramError(
                "A column of the batch has no values, however many examples there are."
            )
        for own, (shape, dtype) in zip(values, self.examples, strict=False):
            if own.shape[1:] != shape or own.dtype != dtype:
                raise EngramError(
                    f"A column of the batch has rows of {tuple(own.shape[1:])} {own.dtype}; in the "
                    f"first batch they were {tuple(shape)} {dtype}."
                )
        return parts

    def values(self, tensors: list[Part]) -> list[Tensor]:
        """Return tensors that hold all values, with one row for each example."""
        return [each.padded() if isinstance(each, Ragged) else each for each in tensors]

    def sizes(self, tensors: list[Part]) -> list[int]:
        """Return the bytes of each example of a batch."""
        each = (_nbytes(part) for part in tensors)
        return [sum(own) for own in zip(*each, strict=True)]

    def resize(self, rows: int, batch: object) -> None:
        """Make room for this many rows; it costs nothing before they are written."""
        parts = self.check(batch)
        kinds = [part.values if isinstance(part, Ragged) else part for part in parts]
        examples = self.examples or [(own.shape[1:], own.dtype) for own in kinds]
        new = [_allocated(rows) for _ in examples]
        for source, target in zip(self._rows, new, strict=False):
            target.buffers[: len(source)] = source.buffers[:rows]
        device = self.device or parts[0].device
        self._structure = self._structure or describe(batch)
        self.examples = examples
        self.device, self.rows, self._rows = device, rows, new

    def selected(self, slots: Tensor, rows: int) -> dict[str, Any]:
        """Return what changes where only the rows in these slots stay, as the first of ``rows``."""
        new = []
        for row in self._rows:
            new.append(_allocated(rows))
            new[-1].buffers[: len(slots)] = row.index_select(0, slots)
        return {"rows": rows, "_rows": new}

    def _staged_writes(self, slots: list[int], tensors: list[Part]) -> Staged:
        kept = [place for place, slot in enumerate(slots) if slot >= 0]
        if not kept:
            return []
        target = torch.tensor([slots[place] for place in kept], dtype=torch.int64)
        staged: list[Any] = []
        for row, part in zip(self._rows, tensors, strict=True):
            data, ends = _bytes_of(part), [0, *accumulate(_nbytes(part))]
            own = [bytearray(data[ends[place] : ends[place + 1]]) for place in kept]
            staged.append((row, target, own))
        return staged

    def _staged_moves(self, moves: Moves) -> Staged:
        free = torch.arange(moves.length, max(moves.length, moves.previous))
        source, target = (torch.from_numpy(slots) for slots in moves[:2])
        staged: list[Any] = []
        for row in self._rows:
            staged.append((row, target, row.index_select(0, source)))
            staged.append((row, free, [bytearray() for _ in range(len(free))]))
        return staged

    def place(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the host where samples are."""
        return tensor if self.device is None else tensor.to(self.device)

    def read(self, slots: Tensor) -> Batch:
        """Return the rows as a batch of the structure that was added."""
        assert self._structure is not None
        chosen = slots.tolist()
        ragged = leaves(self._structure)
        found: list[Any] = []
        for row, (shape, dtype), kind in zip(self._rows, self.examples, ragged, strict=True):
            found.append(self.place_column(row.join(chosen), shape, dtype, kind))
        return rebuild(self._structure, iter(found))

    def place_column(
        self, packed: tuple[bytearray, list[int]], shape: torch.Size, dtype: torch.dtype, kind: str
    ) -> Part:
        """Return a column of bytes as a tensor or a `Ragged`, where samples are."""
        data, nbytes = packed
        step = dtype.itemsize * shape.numel()
        values = from_bytes(data, (len(data) // step if step else 0, *shape), dtype)
        if kind == "tensor":
            if not step:  # rows of nothing take no bytes
                values = torch.empty((len(nbytes), *shape), dtype=dtype)
            return self.place(values)
        return Ragged.packed(self.place(values), [size // step if step else 0 for size in nbytes])

    def state_dict(self, length: int) -> dict[str, Any]:
        """Return the first ``length`` rows, packed, with their lengths, and their structure."""
        rows, lengths = {}, {}
        kinds = [] if self._structure is None else leaves(self._structure)
        parts = zip(self._rows, self.examples, kinds, strict=True)
        for place, (row, (shape, dtype), _) in enumerate(parts):
            packed = row.join(range(length))
            column = self.place_column(packed, shape, dtype, "ragged")
            rows[str(place)] = column.values.cpu()
            lengths[str(place)] = torch.tensor(column.lengths, dtype=torch.int64)
        return {"kind": self.kind, "structure": self._structure, "rows": rows, "lengths": lengths}

    def load_state_dict(self, state: dict[str, Any], rows: int) -> None:
        """Take over the rows and structure."""
        self.check_kind(state)
        self.rows, self._rows, self.examples, self._structure = 0, [], [], None
        if state["structure"] is None:
            return
        kinds, parts = leaves(state["structure"]), []
        for place, kind in enumerate(kinds):
            values, lengths = state["rows"][str(place)], state["lengths"][str(place)].tolist()
            if kind == "ragged":
                parts.append(Ragged.packed(values, lengths))
            elif set(lengths) <= {1} and len(values) == len(lengths):
                parts.append(values)
            else:
                raise EngramError("The state's lengths are not as a memory writes them.")
        batch = rebuild(state["structure"], iter(parts))
        self.resize(rows, batch)
        count = len(parts[0])
        self.commit(self._staged_writes([*range(count)], parts))

    def nbytes_of(self, slots: Sequence[int]) -> list[int]:
        """Return the bytes of the examples in these slots."""
        return [sum(len(row.buffers[slot]) for row in self._rows) for slot in slots]


class PackedRows:
    """One column's bytes by slot. What a storage asks of a tensor of rows, it can ask of this."""

    def __init__(self, rows: int) -> None:
        self.buffers: list[bytearray] = [bytearray()] * rows

    def __len__(self) -> int:
        return len(self.buffers)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return sum(map(len, self.buffers))

    def clone(self) -> PackedRows:
        """Return a copy."""
        copied = PackedRows(0)
        copied.buffers = [bytearray(buffer) for buffer in self.buffers]
        return copied

    def index_select(self, _: int, slots: Tensor) -> list[bytearray]:
        """Return copies of the rows in these slots."""
        return [bytearray(self.buffers[slot]) for slot in slots.tolist()]

    def index_copy_(self, _: int, slots: Tensor, values: Iterable[bytearray]) -> None:
        """Put rows into these slots; what was there is overwritten with zeros before it goes."""
        buffers = self.buffers
        for slot, new in zip(slots.tolist(), values, strict=True):
            old = buffers[slot]
            if old is not new:
                old[:] = bytes(len(old))
                buffers[slot] = new

    def join(self, slots: Iterable[int]) -> tuple[bytearray, list[int]]:
        """Return the rows in these slots, one after another, and the bytes of each."""
        own = [self.buffers[slot] for slot in slots]
        return bytearray().join(own), [*map(len, own)]


def _allocated(rows: int) -> PackedRows:
    try:
        return PackedRows(rows)
    except MemoryError as error:
        raise EngramError(
            f"The memory cannot allocate {rows:,} rows; give it a smaller capacity or budget."
        ) from error


def leaves(structure: Structure) -> list[str]:
    """Return what each leaf of a structure is, in its order."""
    if isinstance(structure, str):
        if structure not in ("tensor", "ragged"):
            raise EngramError("The state's structure is not as a memory writes it.")
        return [structure]
    ((_, parts),) = structure.items()
    each: Iterator[Structure] = iter(parts.values() if isinstance(parts, dict) else parts)
    return [leaf for part in each for leaf in leaves(part)]


def _nbytes(part: Part) -> list[int]:
    """Return the bytes of each example of a column."""
    values = part.values if isinstance(part, Ragged) else part
    step = values.element_size() * values.shape[1:].numel()
    return (
        [step * length for length in part.lengths]
        if isinstance(part, Ragged)
        else [step] * len(part)
    )


def _bytes_of(part: Part) -> memoryview[Any]:
    values = part.values if isinstance(part, Ragged) else part
    rows = as_rows(values.detach().cpu()).reshape(-1)
    if len(rows) and rows.stride(0) != 1:  # a single number of another tensor's is contiguous too
        rows = rows.clone(memory_format=torch.contiguous_format)
    return memoryview(rows.view(torch.uint8).numpy().data if len(rows) else b"")


def from_bytes(data: bytearray, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return bytes as a tensor that shares them."""
    if not data:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(data, dtype=row_dtype(dtype)).view(dtype).view(tuple(shape))
