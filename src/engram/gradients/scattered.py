"""A mixture on a GPU in four launches, whatever the model: rows are read where autograd left them.

By the addresses of the gradients one kernel takes all dot products and another one forms the
mixture; in between one gathers the numbers, and the rule weighs them. What this is not for (more
than two rows, gradients with gaps or of several kinds, a step that is being captured) goes through
`engram.gradients.gram`, which comes to the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from operator import eq
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients.gram import SHARED_BUFFERS, Gradient
from engram.kernels import triton_works

if TYPE_CHECKING:
    from engram.kernels.rows import Scattered

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ALIGNMENT = 16  # bytes, which a GPU loads at once from an address that is a multiple of them
_KEPT = 16  # tables on a device: as a rule the addresses are those of a step not long ago

_Addresses: TypeAlias = tuple[tuple[int, ...], ...]  # of each row's gradients; 0 for none


class ScatteredRows(NamedTuple):
    """One row or two, and what holds their mixture in the end."""

    table: Scattered
    mixture: Gradient
    """The first row's gradients, and the second's where it has none."""


def scattered_rows(rows: Sequence[Gradient], losses: Sequence[Tensor]) -> ScatteredRows | None:
    """Return where the rows are; None where they are mixed in another way."""
    if len(rows) > 2 or not all(map(triton_works, losses)):
        return None
    device = losses[0].device
    stream = _stream_in_use(device)
    if stream is None:
        return None
    # A GPU may wait while all parameters are gone through: the interpreter's own loops are fast.
    every = [each for row in rows for each in row if each is not None]
    dtypes = {each.dtype for each in every}
    if len(dtypes) != 1 or not dtypes.issubset(_DTYPES) or {*map(type, every)} != {Tensor}:
        return None
    if len({*map(Tensor.get_device, every), *map(Tensor.get_device, losses)}) != 1:
        return None
    if {each.layout for each in every} != {torch.strided} or not _in_one_order(every, rows):
        return None
    mixture = [r if g is None else g for g, r in zip(rows[0], rows[-1], strict=True)]
    sizes = [0 if each is None else each.numel() for each in mixture]
    addresses = [[0 if each is None else each.data_ptr() for each in row] for row in rows]
    if 0 in sizes:  # what no row reaches, or what has no elements
        addresses = [[*compress(row, sizes)] for row in addresses]
        sizes = [size for size in sizes if size]
    if not sizes:
        return None
    if len(rows) == 2 and any(map(eq, *addresses)):
        raise EngramError(SHARED_BUFFERS)
    from engram.kernels.rows import Scattered

    where = device, stream
    tables = _addresses(tuple(map(tuple, addresses)), *where), _pieces(tuple(sizes), *where)
    aligned = not any(each % _ALIGNMENT for row in addresses for each in row)
    return ScatteredRows(Scattered(*tables, dtypes.pop(), aligned), mixture)


def _stream_in_use(device: torch.device) -> int | None:
    """Return which stream of the device is in use; None if what it does is being captured.

    A graph would go on to read the addresses of the step that was captured.
    """
    if torch.cuda.is_current_stream_capturing():
        return None
    return torch.cuda.current_stream(device).cuda_stream


def _in_one_order(every: Sequence[Tensor], rows: Sequence[Gradient]) -> bool:
    """Whether each parameter's gradients lie in one order without gaps; channels-last ones do."""
    if all(map(Tensor.is_contiguous, every)):
        return True
    for column in zip(*rows, strict=True):
        there = [each for each in column if each is not None]
        if all(map(Tensor.is_contiguous, there)):
            continue
        order = sorted(range(there[0].dim()), key=there[0].stride, reverse=True)
        alike = all(each.stride() == there[0].stride() for each in there)
        if not (alike and there[0].permute(order).is_contiguous()):
            return False
    return True


# A table belongs to the stream on which it was written: on another one it might be read too early.


@lru_cache(_KEPT)
def _addresses(by_row: _Addresses, device: torch.device, _: int) -> Tensor:
    return torch.from_numpy(np.array(by_row, np.int64)).to(device, non_blocking=True)


@lru_cache(_KEPT)
def _pieces(sizes: tuple[int, ...], device: torch.device, _: int) -> Tensor:
    from engram.kernels.rows import PIECE

    lengths = np.array(sizes, np.int64)
    counts = -(-lengths // PIECE)
    parameter = np.repeat(np.arange(len(sizes)), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    first = (np.arange(len(parameter)) - before) * PIECE
    table = torch.from_numpy(np.stack([parameter, first, lengths[parameter]]))
    return table.to(device, non_blocking=True)
