"""Where examples are: in rows of their own, or as indices into data that is resident anyway."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory.columns import (
    Batch,
    Structure,
    as_rows,
    check_dense,
    check_examples,
    check_kinds,
    check_lengths,
    describe,
    example_nbytes,
    flatten,
    on_host,
    own_labels,
    rebuild,
    row_dtype,
)
from engram.memory.examples import Integers, integers
from engram.memory.journal import deep_copy, new_lock
from engram.memory.slots import Moves

Staged: TypeAlias = list[tuple[Tensor, Tensor, Tensor]]
"""Tensors of rows, slots in them, and the values to write there, one after another."""


class TensorStorage:
    """Rows of tensors: a batch of any structure, each tensor with its own shape and dtype.

    The first batch fixes the structure, the shapes, the dtypes and, unless one is given, the
    device. A named tuple comes back as a tuple, any mapping as a dict. On a GPU each tensor has
    one row more than ``nbytes`` counts, for what is not to be kept.

    >>> storage = TensorStorage()
    >>> batch = {"image": torch.zeros(2, 3), "label": torch.tensor([4, 5])}
    >>> storage.resize(10, batch)
    >>> storage.nbytes == 10 * (3 * 4 + 8)
    True
    """

    kind = "tensors"
    waits_for_flags = False
    """Whether it can write only what is known to be valid."""

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
        """Held by a memory that reads or changes the storage, and while it is copied."""
        self.rows = 0
        """How many rows are allocated."""
        self._structure: Structure | None = None
        self._rows: list[Tensor] = []
        # On a device: the same with a row behind the last, and its number, which is there as well.
        self._with_spare: list[Tensor] = []
        self._spare: Tensor | None = None
        self.examples: list[tuple[torch.Size, torch.dtype]] = []
        """The shapes and dtypes of an example's tensors; another list for another kind of batch."""
        self._accepted: list[tuple[Any, ...]] | None = None  # what was checked last
        self._by_view = False  # whether some rows are of another dtype than their examples
        self._on_host = True
        self._slot_buffer = SlotBuffer()

    @property
    def on_host(self) -> bool:
        """Whether slots are read on the host, wherever samples are."""
        return self._on_host

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
                _check_on_device(tensor.dtype, self.device_for(tensors))
        return tensors

    def labels(self, batch: object) -> Tensor | None:
        """Return the labels that a batch itself holds: a tuple's last tensor, if it can be that."""
        return own_labels(batch)

    def label_column(
        self, batch: object, tensors: list[Tensor], labels: Integers | None
    ) -> int | None:
        """Return which tensor of a batch has its labels, if they are on a device, as its rows are.

        Then nobody needs to wait for them: `labels_in` reads them from the rows whenever they are
        asked for. None where they can only be read from what was given.
        """
        if self._on_host:
            return None
        given = self.labels(batch) if labels is None else labels
        for place, tensor in enumerate(tensors):
            if tensor is given:
                return place if _may_be_read_late(tensor) else None
        return None

    def labels_in(self, column: int, slots: Tensor) -> Tensor:
        """Return the labels in these slots, on the storage's device."""
        return self._rows[column].index_select(0, slots).to(torch.int64)

    def values(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors that `read` will make examples of, given what `check` returned."""
        return tensors

    def sizes(self, tensors: list[Tensor]) -> list[int] | None:  # noqa: ARG002
        """Return the bytes of each example of a batch; None where all are of one size."""
        return None

    def device_for(self, tensors: list[Tensor]) -> torch.device:
        """Return the device of the rows, which the first batch decides unless one was given."""
        return self.device or tensors[0].device

    def resize(self, rows: int, batch: object) -> None:
        """Allocate this many rows for examples such as the batch's, and keep what is there."""
        tensors = self.check(batch)
        examples = self.examples or [(tensor.shape[1:], tensor.dtype) for tensor in tensors]
        device = self.device_for(tensors)
        kinds = [(shape, row_dtype(dtype)) for shape, dtype in examples]
        with refused_without_room(rows, rows * example_nbytes(tensors), device):
            parts = self._allocated(rows, kinds, device)
        for source, target in zip(self._rows, parts["_rows"], strict=False):  # at first: none
            target[: len(source)] = source
        self._structure = self._structure or describe(batch)
        self.examples = examples
        self._by_view = any(row_dtype(dtype) != dtype for _, dtype in examples)
        self.device = device
        self._on_host = on_host(device)
        vars(self).update(parts)

    def allocate(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, /) -> Tensor:
        """Return rows of zeros."""
        return allocate(shape, dtype, device)

    def _allocated(
        self, rows: int, kinds: Sequence[tuple[torch.Size, torch.dtype]], device: torch.device
    ) -> dict[str, Any]:
        """Return this many rows of each kind and, on a device, one more of each."""
        spare = 0 if on_host(device) else 1
        whole = [self.allocate((rows + spare, *shape), dtype, device) for shape, dtype in kinds]
        if not spare:
            return {"rows": rows, "_rows": whole}
        with torch.inference_mode(False):
            own = [each[:rows] for each in whole]
            number = torch.full((), rows, dtype=torch.int64, device=device)
        return {"rows": rows, "_rows": own, "_with_spare": whole, "_spare": number}

    def selected(self, slots: Tensor, rows: int) -> dict[str, Any]:
        """Return what changes where only the rows in these slots stay, as the first of ``rows``.

        They are copies: the storage itself is as it was.
        """
        chosen, own = self.place(slots), self._rows
        size = sum(row.dtype.itemsize * row.shape[1:].numel() for row in own)
        kinds = [(row.shape[1:], row.dtype) for row in own]
        with refused_without_room(rows, rows * size, own[0].device):
            parts = self._allocated(rows, kinds, own[0].device)
        for row, target in zip(own, parts["_rows"], strict=True):
            torch.index_select(row, 0, chosen, out=target[: len(slots)])
        return {**parts, "_accepted": None}

    def empty(self) -> TensorStorage:
        """Return a storage of this kind, on this device, that holds nothing."""
        return type(self)(self.device)

    def contents(self) -> dict[str, Any]:
        """Return what another storage takes over to hold what this one, made by `empty`, holds."""
        return vars(self)

    def discard(self) -> None:
        """Give up a storage that was made by `empty` and that nothing has taken over."""

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
        with what they hold now, or spare ones; these are cleared where no example comes.
        """
        staged = [] if moves is None else self._staged_moves(moves)
        if not slots and self._spare is not None:
            place = self._spare.unsqueeze(0)
            staged += [(row, place, row.new_zeros(1, *row.shape[1:])) for row in self._with_spare]
        if valid is None:
            return staged + self._staged_writes(slots, tensors)
        late = self._staged_beside(slots, tensors, valid)
        if late is None:
            staged += self._staged_writes(slots, tensors)
        own = [
            (row, target, torch.where(valid, values, row.index_select(0, target)))
            for row, target, values in staged
        ]
        return own + (late or [])

    def _staged_beside(
        self, slots: list[int], tensors: list[Tensor], valid: Tensor
    ) -> Staged | None:
        """Return what writes examples of the device to their slots, where the flag holds.

        All others go to the spare row: so there is one launch for a column, and one for the flag.
        None where the rows, or some examples, are on the host.
        """
        spare, number = self.rows, self._spare
        if number is None or any(tensor.device != number.device for tensor in tensors):
            return None
        if -1 in slots:
            if max(slots) < 0:
                return []
            slots = [spare if slot < 0 else slot for slot in slots]
        if self._by_view:
            tensors = [as_rows(tensor.detach()) for tensor in tensors]
        target = torch.where(valid, self.place(self._slot_buffer.fill(slots)), number)
        return [
            (row, target, tensor.detach() if tensor.requires_grad else tensor)
            for row, tensor in zip(self._with_spare, tensors, strict=True)
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
        target = self.place(self._slot_buffer.fill(slots))
        staged = []
        for row, tensor in zip(self._rows, tensors, strict=True):
            own = tensor if tensor.device == self.device else tensor.to(self.device)
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
        own = {id(row) for row in (*self._rows, *self._with_spare)}
        found = {slot for row, slots in written if id(row) in own for slot in slots}
        return sorted(slot for slot in found if slot < self.rows)

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
            return {**self._parts(), "_rows": rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {"_by_view": False, **state}
        if "_examples" in state:  # a pickle of 0.1.0
            state["examples"] = state.pop("_examples")
        state.pop("_places", None)  # the buffer of such a pickle
        own: Any = {"_with_spare": [], "_spare": None, "_slot_buffer": SlotBuffer()}
        vars(self).update(state, lock=new_lock(), **own)
        if self._rows and not self._on_host:
            vars(self).update(self.selected(torch.arange(self.rows, device="cpu"), self.rows))

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorStorage:
        """Return a copy of everything as it is between two changes."""
        with self.lock:
            return deep_copy(self, self._parts(), memo)

    def _parts(self) -> dict[str, Any]:
        """Return all but the lock, the buffer and the spare rows: those of a copy are its own."""
        own = ("lock", "_slot_buffer", "_with_spare", "_spare")
        return {name: part for name, part in vars(self).items() if name not in own}

    def state_dict(self, length: int) -> dict[str, Any]:
        """Return the first ``length`` rows (not copied) and their structure."""
        rows = {str(place): row[:length] for place, row in enumerate(self._as_added(self._rows))}
        return {"kind": self.kind, "structure": self._structure, "rows": rows}

    def check_kind(self, state: dict[str, Any]) -> None:
        """Refuse the state of another kind of storage."""
        if state["kind"] != self.kind:
            raise EngramError(
                f"The state holds {state['kind']}; this memory's storage holds {self.kind}."
            )

    def load_state_dict(self, state: dict[str, Any], rows: int) -> None:
        """Take over the rows and structure, copied into ``rows`` allocated ones."""
        self.check_kind(state)
        self.rows, self._rows, self.examples = 0, [], []
        self._with_spare, self._spare = [], None
        self._structure = self._accepted = None
        if state["structure"] is not None:
            tensors = [state["rows"][str(place)] for place in range(len(state["rows"]))]
            self.resize(rows, rebuild(state["structure"], iter(tensors)))
            for row, tensor in zip(self._rows, tensors, strict=True):
                row[: len(tensor)] = as_rows(tensor)


class IndexStorage(TensorStorage):
    """Indices into ``data``, a tuple or dict of tensors that share their first dimension.

    A batch is a one-dimensional integer tensor of indices; what is read are the rows they point at.
    The data is neither copied nor saved, and does not count in ``nbytes``.

    ``data`` may also be a data set that gives examples by index, such as a torch ``Dataset`` or one
    of Hugging Face's: it has ``len(data)``, and ``data[i]`` or ``data.__getitems__([i, ...])``. Its
    examples are read when they are sampled, and not before, and the memory's ``collate`` makes a
    batch of them, by default torch's. ``labels`` has the class of each, for a policy that
    keeps examples by class.

    >>> storage = IndexStorage((torch.arange(10.0), torch.arange(10) % 3))
    >>> storage.labels(torch.tensor([4, 5]))
    tensor([1, 2])
    """

    kind = "indices"
    dataset: Any = None
    """The data set that examples are read from; None where they are in tensors."""

    def __init__(self, data: object, *, labels: Integers | None = None) -> None:
        given: Any = data
        self.dataset = given if _is_dataset(data) else None
        self._data: list[Tensor] = []
        self._data_labels: Tensor | None = None
        if self.dataset is None:
            self._data_structure = describe(data)
            self._data = flatten(self._data_structure, data)
            check_kinds(self._data)
            check_lengths(self._data)
            self._data_labels = own_labels(data)
        size = len(self._data[0]) if self.dataset is None else len(self.dataset)
        if labels is not None:
            self._data_labels = torch.tensor(integers("labels", labels, size), dtype=torch.int64)
        super().__init__(self._data[0].device if self._data else "cpu")

    def __len__(self) -> int:
        return len(self._data[0]) if self.dataset is None else len(self.dataset)

    def check(self, batch: object) -> list[Tensor]:
        """Return the indices as the only tensor, or refuse what is no index into the data."""
        if not isinstance(batch, Tensor) or own_labels((batch,)) is None:
            raise EngramError(
                "A batch for an IndexStorage must be a one-dimensional integer tensor of indices."
            )
        indices = batch.to(torch.int64)
        self._check_range(indices)
        return [indices]

    def _check_range(self, indices: Tensor) -> None:
        size = len(self)
        if len(indices):
            least, most = int(indices.min()), int(indices.max())
            if least < 0 or most >= size:
                raise EngramError(
                    f"The index {least if least < 0 else most} is not among the data's "
                    f"{size} rows, 0 to {size - 1}."
                )

    def labels(self, batch: object) -> Tensor | None:
        """Return the labels of the rows, if they were given or the data ends with them."""
        if self._data_labels is None or not isinstance(batch, Tensor):
            return None
        indices = batch.to(self._data_labels.device, torch.int64)
        labels = as_rows(self._data_labels).index_select(0, indices)
        return labels.view(self._data_labels.dtype)

    def label_column(
        self,
        batch: object,  # noqa: ARG002
        tensors: list[Tensor],  # noqa: ARG002
        labels: Integers | None,
    ) -> int | None:
        """Return 0 where the labels of the data are on a device, and none are given."""
        own = self._data_labels
        if self._on_host or labels is not None or own is None or not _may_be_read_late(own):
            return None
        return 0

    def labels_in(self, column: int, slots: Tensor) -> Tensor:
        """Return the labels of the rows of the data that are in these slots."""
        assert self._data_labels is not None
        indices = super().labels_in(column, slots)
        return self._data_labels.index_select(0, indices).to(torch.int64)

    def values(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the rows of the data that the indices point at; none of a data set."""
        return list(self._pointed_at(tensors[0]))

    def at(self, indices: Tensor) -> Batch:
        """Return a batch of the data's structure; of a data set, the list of its examples."""
        if self.dataset is None:
            return rebuild(self._data_structure, self._pointed_at(indices))
        own = indices.tolist()
        if hasattr(self.dataset, "__getitems__"):
            return list(self.dataset.__getitems__(own))
        return [self.dataset[index] for index in own]

    def _pointed_at(self, indices: Tensor) -> Iterator[Tensor]:
        for part in self._data:
            rows = as_rows(part).index_select(0, indices.to(part.device))
            yield rows if rows.dtype == part.dtype else rows.view(part.dtype)

    def read(self, slots: Tensor) -> Batch:
        """Return the rows of the data that are in these slots, as `at` does."""
        return self.at(self._rows[0].index_select(0, slots))

    def load_state_dict(self, state: dict[str, Any], rows: int) -> None:
        """Take over the indices, if they all point into the data."""
        if state["kind"] == self.kind:
            for indices in state["rows"].values():
                self._check_range(indices)
        super().load_state_dict(state, rows)


def _may_be_read_late(labels: Tensor) -> bool:
    """Tell whether labels are on a device, and so that each of them fits a column of labels."""
    if on_host(labels.device) or own_labels((labels,)) is None:
        return False
    return row_dtype(labels.dtype) == labels.dtype  # others may be beyond 64 bits


def _is_dataset(data: object) -> bool:
    plain = isinstance(data, Tensor | tuple | list | Mapping | str | bytes)
    if plain or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        return False
    try:
        len(data)
    except TypeError:  # an array without dimensions, or a data set that is a stream
        return False
    return True


class SlotBuffer:
    """Slots as a tensor, made once and filled again while they stay as many.

    Between two training steps everything has left the processor's caches, and making a tensor
    takes several times as long as filling one.
    """

    def __init__(self) -> None:
        # Together, so that an interruption never leaves one without the other.
        self._held = array("q"), torch.empty(0, dtype=torch.int64, device="cpu")

    def fill(self, slots: list[int]) -> Tensor:
        """Return the slots as a tensor of the host, which the next call may fill again."""
        new = array("q", slots)
        numbers, tensor = self._held
        if len(numbers) == len(new):
            numbers[:] = new
        else:  # nothing else makes a tensor of a few numbers as fast
            tensor = torch.frombuffer(new, dtype=torch.int64)
            self._held = new, tensor
        return tensor


@contextmanager
def refused_without_room(rows: int, nbytes: int, device: torch.device) -> Iterator[None]:
    """Refuse rows that cannot be allocated: no room, no such device, or one without a dtype."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise EngramError(
            f"The memory cannot allocate {rows:,} rows ({nbytes:,} bytes) on {device}; "
            "give it a smaller capacity or budget, or another device."
        ) from error


def allocate(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of zeros; on the host, what nobody has written to takes no memory.

    There it is numpy's, which asks for large pages where there is much of it: rows that are far
    apart are then read an eighth faster.
    """
    count = math.prod(shape)
    with torch.inference_mode(False):  # what is made in inference mode cannot be written after it
        if device.type != "cpu" or not count:
            return torch.zeros(tuple(shape), dtype=dtype, device=device)
        numbers = np.zeros(count * dtype.itemsize, np.uint8)
        return torch.from_numpy(numbers).view(dtype).view(tuple(shape))


@cache
def _check_on_device(dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a dtype whose rows a device cannot write and read, before there are any."""
    try:
        rows, place = allocate((2,), row_dtype(dtype), device), torch.zeros(1, dtype=torch.int64)
    except (MemoryError, RuntimeError, TypeError, AssertionError):
        return  # no such device, or one without this dtype: whoever allocates the rows says so
    place = place.to(device)
    try:
        rows.index_copy_(0, place, rows.index_select(0, place))
        rows.view(dtype)
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise EngramError(
            f"A tensor of the batch is of {dtype}, of which a memory cannot hold rows on {device}: "
            f"{error}."
        ) from error


def _sent(tensor: Tensor, device: torch.device | None) -> Tensor:
    """Return a tensor of numbers of ours on a device, without waiting for the work before it.

    A GPU takes what is not in pinned memory, as these are not, before the call returns.
    """
    return tensor.to(device, non_blocking=device is not None and device.type == "cuda")
