"""The structure of a batch: a tensor, or a tuple, list or dict of them, nested at will."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from torch import Size, Tensor, dtype, strided
from torch import bool as bool_

from engram.errors import EngramError
from engram.memory._dtypes import row_dtype

Batch: TypeAlias = Any
"""A tensor, or a tuple, list or dict of batches: a recursive type that no checker follows."""

Structure: TypeAlias = str | dict[str, Any]
"""JSON: ``"tensor"``, ``{"tuple": [...]}``, ``{"list": [...]}`` or ``{"dict": {name: ...}}``."""


def describe(batch: object) -> Structure:
    """Return a batch's structure; a named tuple counts as a tuple, any mapping as a dict."""
    if isinstance(batch, Tensor):
        return "tensor"
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


def flatten(structure: Structure, batch: object) -> list[Tensor]:
    """Return the tensors of a batch of this structure, in the structure's order."""
    if isinstance(structure, str):
        if isinstance(batch, Tensor):
            return [batch]
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
            tensors += flatten(part, own)
    return tensors


def rebuild(structure: Structure, tensors: Iterator[Tensor]) -> Batch:
    """Return a batch of this structure made of the tensors, in the structure's order."""
    if isinstance(structure, str):
        return next(tensors)
    ((kind, parts),) = structure.items()
    if kind == "dict":
        return {name: rebuild(part, tensors) for name, part in parts.items()}
    built = [next(tensors) if part == "tensor" else rebuild(part, tensors) for part in parts]
    return tuple(built) if kind == "tuple" else built


def check_kinds(tensors: list[Tensor]) -> None:
    """Refuse tensors that are not what their shape and dtype say, and dtypes that none holds."""
    for tensor in tensors:
        if tensor.is_nested:
            raise EngramError(
                "A tensor of the batch is nested; give its examples padded to one length."
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
    if any(tensor.layout is not strided or tensor.is_meta for tensor in tensors):
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
        told = ", ".join(str(len(tensor)) if tensor.ndim else "none" for tensor in tensors)
        raise EngramError(
            "The tensors of a batch must share their first dimension, one entry for each example; "
            f"their lengths are {told}."
        )


def check_examples(tensors: list[Tensor], examples: list[tuple[Size, dtype]]) -> None:
    """Refuse tensors whose examples are not of these shapes and dtypes, if there are any yet."""
    for tensor, (shape, kind) in zip(tensors, examples, strict=False):
        if tensor.shape[1:] != shape or tensor.dtype != kind:
            raise EngramError(
                f"A tensor of the batch has examples of {tuple(tensor.shape[1:])} "
                f"{tensor.dtype}; in the first batch they were {tuple(shape)} {kind}."
            )


def own_labels(batch: object) -> Tensor | None:
    """Return the labels that a batch holds itself: a tuple's last tensor, if it can be that."""
    last = batch[-1] if isinstance(batch, tuple) and batch else None
    if not isinstance(last, Tensor) or last.ndim != 1:
        return None
    return None if last.is_floating_point() or last.is_complex() or last.dtype == bool_ else last


def example_nbytes(tensors: list[Tensor]) -> int:
    """Return the bytes of one example."""
    return sum(math.prod(tensor.shape[1:]) * tensor.element_size() for tensor in tensors)


def _differs(structure: Structure, batch: object) -> EngramError:
    return EngramError(
        f"The batch's structure differs from the first batch's: where that had {_say(structure)}, "
        f"this one has {_say(describe(batch))}."
    )


def _say(structure: Structure) -> str:
    if isinstance(structure, str):
        return "a tensor"
    ((kind, parts),) = structure.items()
    return f"a dict of {sorted(parts)}" if kind == "dict" else f"a {kind} of {len(parts)}"
