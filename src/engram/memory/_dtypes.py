"""Which dtypes a memory holds, and as what: torch reads and writes rows of only some of them.

And which of their values are finite.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory._allocation import allocate

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


@cache
def check_on_device(dtype: torch.dtype, device: torch.device) -> None:
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


def to_file(tensor: Tensor) -> tuple[Tensor, str | None]:
    """Return a tensor as any safetensors file can hold it, and what dtype it is then to be told."""
    if tensor.dtype in _PLAIN:
        return tensor, None
    name = str(tensor.dtype).removeprefix("torch.")
    return torch.view_as_real(tensor) if tensor.dtype in _COMPLEX else as_rows(tensor), name


def from_file(tensor: Tensor, name: object) -> Tensor:
    """Return the tensor of which `to_file` told this dtype."""
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


def finite_flag(tensor: Tensor) -> Tensor | None:
    """Return whether all values are finite, on the tensor's device; None where all have to be."""
    values = _inexact(tensor)
    # The largest magnitude is no number where one of the values is none.
    return None if values is None else torch.linalg.vector_norm(values, math.inf) < math.inf


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
