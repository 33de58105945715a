"""The tensors of an example: how a batch nests them, and which dtypes and values a memory takes.

A batch is a tensor, or a tuple, list or dict of batches, nested at will. Each of its tensors is a
column: one row for each example.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError, shown

Batch: TypeAlias = Any
"""A tensor, or a tuple, list or dict of batches: a recursive type that no checker follows."""

Structure: TypeAlias = str | dict[str, Any]
"""JSON: ``"tensor"``, ``{"tuple": [...]}``, ``{"list": [...]}`` or ``{"dict": {name: ...}}``."""

# Torch reads and writes rows of only some dtypes; rows of others are held as one that is as wide.
_PLAIN = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
_COMPLEX = (torch.complex64, torch.complex128)
_BY_VIEW = {
    "uint16": torch.int16,
    "uint32": torch.int32,
    "uint64": torch.int64,
    "complex32": torch.int32,
    "float8_e4m3fn": torch.uint8,
    "float8_e4m3fnuz": torch.uint8,
    "float8_e5m2": torch.uint8,
    "float8_e5m2fnuz": torch.uint8,
    "float8_e8m0fnu": torch.uint8,
    "float4_e2m1fn_x2": torch.uint8,
}
_ROWS: dict[torch.dtype, torch.dtype] = {dtype: dtype for dtype in (*_PLAIN, *_COMPLEX)} | {
    getattr(torch, name): rows
    for name, rows in _BY_VIEW.items()
    if hasattr(torch, name)  # an older torch has fewer of them
}
_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
# What may hold a value that is not finite, and as what torch can tell that.
_INEXACT = {dtype: dtype for dtype in (*_FLOATS, *_COMPLEX)}
_INEXACT[torch.complex32] = torch.complex64
_INEXACT |= {dtype: torch.float32 for dtype in _ROWS if "float8" in str(dtype)}
_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in _ROWS if dtype not in _PLAIN}


def _holds(dtype: torch.dtype, value: object) -> bool:
    """Whether a dtype can hold a number, up to rounding of what is no whole number."""
    if not isinstance(value, int | float):
        return False
    if dtype.is_floating_point or dtype.is_complex:
        finite = abs(value) <= torch.finfo(dtype).max
        return finite or (isinstance(value, float) and not math.isfinite(value))
    if isinstance(value, float) and not value.is_integer():
        return False
    least, most = (
        (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    )
    return least <= value <= most


def _check_dense(values: Tensor) -> None:
    if values.layout is not torch.strided:
        raise EngramError(f"The tensors of a Ragged must be dense, not {values.layout}.")


class Ragged(Sequence[Tensor]):
    """A column whose examples differ in their first dimension: a tensor for each, unpadded.

    ``values`` has all of them one after another, and ``lengths`` how long each is.

    >>> texts = Ragged([torch.tensor([5, 6, 7]), torch.tensor([8])])
    >>> texts.values, texts.lengths
    (tensor([5, 6, 7, 8]), [3, 1])
    >>> texts.padded()
    tensor([[5, 6, 7],
            [8, 0, 0]])
    >>> Ragged.from_padded(texts.padded(), texts.lengths)[0]
    tensor([5, 6, 7])
    """

    __slots__ = ("_starts", "lengths", "values")

    def __init__(self, examples: Iterable[Tensor]) -> None:
        try:
            given = iter(examples)
        except TypeError as error:  # an array without dimensions looks like an Iterable
            raise EngramError(
                f"A Ragged is made of a list of tensors, not {shown(examples)}."
            ) from error
        own = list(given)
        for each in own:
            if not isinstance(each, Tensor) or not each.dim() or each.is_nested:
                raise EngramError(
                    "A Ragged is made of tensors with at least one dimension, the one in which "
                    f"they differ; one of these is {shown(each)}."
                )
            _check_dense(each)
        kinds = {(each.shape[1:], each.dtype, each.device) for each in own}
        if len(kinds) > 1:
            raise EngramError(
                "The tensors of a Ragged may differ in their first dimension alone, not in dtype, "
                "device or the rest of their shape."
            )
        self.values = torch.cat(own) if own else torch.empty(0)
        self._measure([len(each) for each in own])

    def _measure(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self._starts = [0, *accumulate(lengths)]

    @classmethod
    def packed(cls, values: Tensor, lengths: Iterable[int]) -> Ragged:
        """Return the examples that lie one after another in a tensor, and are so long each."""
        own = checked_lengths(lengths)
        if not isinstance(values, Tensor) or not values.dim() or sum(own) != len(values):
            raise EngramError(
                "The lengths of a Ragged must add up to the length of its values, a tensor."
            )
        _check_dense(values)
        made = object.__new__(cls)
        made.values = values
        made._measure(own)
        return made

    @classmethod
    def from_padded(cls, padded: Tensor, lengths: Iterable[int]) -> Ragged:
        """Return the examples of a padded tensor [n, longest, ...], which are so long each."""
        own = checked_lengths(lengths)
        if not isinstance(padded, Tensor) or padded.dim() < 2 or len(padded) != len(own):
            raise EngramError("Give a padded tensor [n, longest, ...], and n lengths.")
        _check_dense(padded)
        if max(own, default=0) > padded.shape[1]:
            raise EngramError(
                f"An example of {max(own)} cannot be in rows that are padded to {padded.shape[1]}."
            )
        if not own:
            return cls.packed(padded.flatten(0, 1), own)
        return cls([row[:length] for row, length in zip(padded, own, strict=True)])

    def padded(self, value: float = 0) -> Tensor:
        """Return one tensor [n, longest, ...], in which shorter ones end with ``value``."""
        shape = (len(self), max(self.lengths, default=0), *self.values.shape[1:])
        if not _holds(self.values.dtype, value):
            raise EngramError(
                f"value is {shown(value)}; give a number that {self.values.dtype} can hold."
            )
        if self.values.dtype.is_floating_point and isinstance(value, int):
            value = float(value)  # of any size, where torch takes whole numbers below 2^63
        whole = self.values.new_full(shape, value)
        for row, own in zip(whole, self, strict=True):
            row[: len(own)] = own
        return whole

    def to(self, device: torch.device | str) -> Ragged:
        """Return the examples on a device."""
        return Ragged.packed(self.values.to(device), self.lengths)

    @property
    def device(self) -> torch.device:
        """Where the examples are."""
        return self.values.device

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401  # one of them, or a Ragged of some
        if isinstance(place, slice):
            places = range(len(self))[place]
            if places.step == 1:
                start, stop = (
                    self._starts[places.start],
                    self._starts[max(places.stop, places.start)],
                )
                return Ragged.packed(self.values[start:stop], self.lengths[place])
            return Ragged([self[each] for each in places])
        own = range(len(self))[place]
        return self.values[self._starts[own] : self._starts[own + 1]]

    def chosen(self, places: Sequence[int]) -> Ragged:
        """Return the examples in these places."""
        if not places:
            return Ragged.packed(self.values[:0], [])
        return Ragged([self[place] for place in places])

    def __repr__(self) -> str:
        kind = f"{tuple(self.values.shape[1:])} {self.values.dtype}"
        return f"Ragged({len(self)} examples of {len(self.values)} rows {kind})"


def checked_lengths(lengths: object) -> list[int]:
    """Return lengths as whole numbers, or refuse what is not that."""
    try:
        column: Any = lengths
        own = [operator.index(each) for each in column]
    except (TypeError, RuntimeError):
        own = [-1]
    if min(own, default=0) < 0:
        raise EngramError(f"lengths is {shown(lengths)}; give one whole number for each example.")
    return own


def on_host(device: torch.device) -> bool:
    """Tell whether what is there can be read at once: of any other device the host has to wait."""
    return device.type == "cpu"


def describe(batch: object) -> Structure:
    """Return a batch's structure; a named tuple counts as a tuple, any mapping as a dict."""
    if isinstance(batch, Tensor):
        return "tensor"
    if isinstance(batch, Ragged):
        return "ragged"
    if isinstance(batch, tuple):
        return {"tuple": [describe(part) for part in batch]}
    if isinstance(batch, list):
        return {"list": [describe(part) for part in batch]}
    if isinstance(batch, Mapping) and all(isinstance(name, str) for name in batch):
        return {"dict": {name: describe(part) for name, part in batch.items()}}
    raise EngramError(
        "A batch is a tensor, or a tuple, a list or a dict (with strings for keys) of tensors; "
        f"it holds a {type(batch).__name__}."
    )


def flatten(structure: Structure, batch: object, *, ragged: bool = False) -> list[Any]:
    """Return the tensors of a batch of this structure, in the structure's order.

    Where a column may be ``ragged`` it is a `Ragged`, and a tensor in its place counts as one.
    """
    if isinstance(structure, str):
        if structure == "tensor" and isinstance(batch, Tensor):
            return [batch]
        if structure == "ragged":
            if not ragged:
                raise EngramError(
                    "The batch has a Ragged column, whose examples differ in length; this memory's "
                    "storage holds examples of one length: use a RaggedStorage."
                )
            if isinstance(batch, Ragged):
                return [batch]
            if isinstance(batch, Tensor) and batch.dim() > 1 and not batch.is_nested:
                return [Ragged.packed(batch.flatten(0, 1), [batch.shape[1]] * len(batch))]
        raise _differs(structure, batch)
    ((kind, parts),) = structure.items()
    if kind == "dict":
        if not isinstance(batch, Mapping) or batch.keys() != parts.keys():
            raise _differs(structure, batch)
        parts, batch = parts.values(), [batch[name] for name in parts]
    elif not isinstance(batch, tuple if kind == "tuple" else list) or len(batch) != len(parts):
        raise _differs(structure, batch)
    tensors: list[Tensor] = []
    for part, own in zip(parts, batch, strict=True):
        if part == "tensor" and isinstance(own, Tensor):
            tensors.append(own)
        else:
            tensors += flatten(part, own, ragged=ragged)
    return tensors


def rebuild(structure: Structure, tensors: Iterator[Any]) -> Batch:
    """Return a batch of this structure made of the tensors, in the structure's order."""
    if isinstance(structure, str):
        return next(tensors)
    ((kind, parts),) = structure.items()
    if kind == "dict":
        return {name: rebuild(part, tensors) for name, part in parts.items()}
    built = [next(tensors) if part == "tensor" else rebuild(part, tensors) for part in parts]
    return tuple(built) if kind == "tuple" else built


def has_ragged(batch: object) -> bool:
    """Tell whether a batch has a `Ragged` column."""
    if isinstance(batch, Ragged):
        return True
    if isinstance(batch, Mapping):
        batch = [*batch.values()]
    return isinstance(batch, tuple | list) and any(map(has_ragged, batch))


def check_kinds(tensors: list[Tensor]) -> None:
    """Refuse tensors that are not what their shape and dtype say, and dtypes that none holds."""
    for tensor in tensors:
        if tensor.is_nested:
            raise EngramError(
                "A tensor of the batch is nested; give Ragged(tensor.unbind()), or its examples "
                "padded to one length."
            )
        if tensor.is_quantized:
            raise EngramError(
                f"A tensor of the batch is quantised ({tensor.dtype}); give it dequantised, or its "
                "int_repr()."
            )
        if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            raise EngramError(
                f"A tensor of the batch is a {type(tensor).__name__}, which stands for others; "
                "give a plain tensor."
            )
        row_dtype(tensor.dtype)


def check_dense(tensors: list[Tensor]) -> None:
    """Refuse tensors that have no value for each of their elements."""
    if any(tensor.layout is not torch.strided or tensor.is_meta for tensor in tensors):
        raise EngramError(
            "The tensors of a batch must be dense and have values; one of these is sparse or "
            "on the device 'meta'."
        )


def check_lengths(tensors: list[Tensor]) -> None:
    """Refuse tensors that do not share their first dimension, the examples."""
    if not tensors:
        raise EngramError("A batch must hold at least one tensor; this one holds none.")
    lengths = {len(tensor) if tensor.ndim else None for tensor in tensors}
    if len(lengths) > 1 or None in lengths:
        counts = ", ".join(str(len(tensor)) if tensor.ndim else "none" for tensor in tensors)
        raise EngramError(
            "The tensors of a batch must share their first dimension, one entry for each example; "
            f"their lengths are {counts}."
        )


def check_examples(tensors: list[Tensor], examples: list[tuple[torch.Size, torch.dtype]]) -> None:
    """Refuse tensors whose examples are not of these shapes and dtypes, if there are any yet."""
    for tensor, (shape, kind) in zip(tensors, examples, strict=False):
        if tensor.shape[1:] != shape or tensor.dtype != kind:
            raise EngramError(
                f"A tensor of the batch has examples of {tuple(tensor.shape[1:])} "
                f"{tensor.dtype}; in the first batch they were {tuple(shape)} {kind}."
            )


def chosen(batch: Batch, places: Sequence[int]) -> Batch:
    """Return the examples of a batch that are in these places, as a batch."""
    structure = describe(batch)
    parts: list[Tensor | Ragged] = []
    for part in flatten(structure, batch, ragged=True):
        if isinstance(part, Ragged):
            parts.append(part.chosen(places))
        else:
            rows = as_rows(part).index_select(0, torch.tensor(places, device=part.device).long())
            parts.append(rows.view(part.dtype))
    return rebuild(structure, iter(parts))


def one_by_one(batch: Batch) -> list[Any]:
    """Return the examples of a batch, each with a tensor for every column."""
    structure = describe(batch)
    columns = [list(column) for column in flatten(structure, batch, ragged=True)]
    return [rebuild(structure, iter(own)) for own in zip(*columns, strict=True)]


def own_labels(batch: object) -> Tensor | None:
    """Return the labels that a batch holds itself: a tuple's last tensor, if it can be that."""
    last = batch[-1] if isinstance(batch, tuple) and batch else None
    if not isinstance(last, Tensor) or last.ndim != 1:
        return None
    return (
        None if last.is_floating_point() or last.is_complex() or last.dtype == torch.bool else last
    )


def example_nbytes(tensors: list[Tensor]) -> int:
    """Return the bytes of one example."""
    return sum(math.prod(tensor.shape[1:]) * tensor.element_size() for tensor in tensors)


def _differs(structure: Structure, batch: object) -> EngramError:
    return EngramError(
        "The batch's structure differs from the first batch's: where that had "
        f"{_in_words(structure)}, this one has {_in_words(describe(batch))}."
    )


def _in_words(structure: Structure) -> str:
    if isinstance(structure, str):
        return "a Ragged" if structure == "ragged" else "a tensor"
    ((kind, parts),) = structure.items()
    return f"a dict of {sorted(parts)}" if kind == "dict" else f"a {kind} of {len(parts)}"


def row_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the rows that hold a dtype: its own, or one as wide; or refuse it."""
    if dtype not in _ROWS:
        raise EngramError(
            f"A tensor of the batch is of {dtype}, which a memory cannot hold; give its values as "
            "another dtype."
        )
    return _ROWS[dtype]


def as_rows(tensor: Tensor) -> Tensor:
    """Return a tensor as its rows are held."""
    dtype = _ROWS[tensor.dtype]
    return tensor if dtype == tensor.dtype else tensor.resolve_conj().view(dtype)


def to_file(tensor: Tensor) -> tuple[Tensor, str | None]:
    """Return a tensor as any safetensors file can hold it, and its dtype if that is another."""
    if tensor.dtype in _PLAIN:
        return tensor, None
    name = str(tensor.dtype).removeprefix("torch.")
    return torch.view_as_real(tensor) if tensor.dtype in _COMPLEX else as_rows(tensor), name


def from_file(tensor: Tensor, name: object) -> Tensor:
    """Return the tensor that `to_file` was given, of the dtype that it named."""
    dtype = _NAMES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise EngramError(f"The file has tensors of {shown(name)}, which this torch does not know.")
    return torch.view_as_complex(tensor) if dtype in _COMPLEX else tensor.view(dtype)


def is_finite(tensor: Tensor) -> bool:
    """Tell whether all values of a tensor of the host are finite."""
    # A value that is not finite makes the sum so, which is one pass; but large ones can as well.
    if tensor.dtype in _FLOATS and math.isfinite(tensor.sum().item()):
        return True
    values = _inexact(tensor)
    return values is None or bool(values.isfinite().all())


def largest_magnitude(tensor: Tensor) -> Tensor | None:
    """Return a number of the tensor's device that is finite if all values are; None if all must be.

    It is NaN where one of the values is.
    """
    values = _inexact(tensor)
    return None if values is None else torch.linalg.vector_norm(values, math.inf)


def first_not_finite(tensors: list[Tensor]) -> int:
    """Return which example is the first that holds a value which is not finite."""
    found: list[int] = []
    for tensor in tensors:
        values = _inexact(tensor if tensor.layout is torch.strided else tensor.to_dense())
        if values is not None:
            whole = values.isfinite().flatten(1).all(1) if values.ndim > 1 else values.isfinite()
            found += (~whole).nonzero()[:1].flatten().tolist()
    return min(found)


def _inexact(tensor: Tensor) -> Tensor | None:
    """Return a tensor's values as floats; None if they have to be finite, as integers have."""
    dtype = _INEXACT.get(tensor.dtype)
    if dtype is None or not tensor.numel():
        return None
    values = tensor.detach() if tensor.requires_grad else tensor
    if values.layout is not torch.strided:  # of data that indices point at
        values = values.coalesce().values()
    if dtype != tensor.dtype:
        values = values.to(dtype)
    return torch.view_as_real(values.resolve_conj()) if dtype.is_complex else values
