"""A mixture on a GPU in four launches, whatever the model: rows are read where autograd left them.

By the addresses of the gradients one kernel takes all dot products and another one forms the
mixture; in between one gathers the numbers, and the rule weighs them. What this is not for (more
than two rows, gradients with gaps or of several kinds, a step that is being captured) goes through
`engram.gradients.gram`, which comes to the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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
    """Return where the rows are; None where they are to be mixed in another way."""
    if len(rows) > 2 or not all(map(triton_works, losses)):
        return None
    device = losses[0].device
    stream = _stream_in_use(device)
    if stream is None:
        return None
    dtype, place, alone = None, losses[0].get_device(), len(rows) == 1
    mixture, sizes = list[Tensor | None](), list[int]()
    addresses: tuple[list[int], list[int]] = [], []
    shared = misaligned = 0
    # A loop over all parameters while a GPU may wait: what is not needed is not called.
    for g, r in zip(rows[0], rows[-1], strict=True):
        held = r if g is None else g
        mixture.append(held)
        if held is None or not held.numel():
            continue
        dtype = dtype or held.dtype
        current = reference = 0
        if g is not None:
            if not _is_one_of(g, dtype, place):
                return None
            current = g.data_ptr()
        if r is not None and not alone:
            if not _is_one_of(r, dtype, place) or not (g is None or _in_one_order(g, r)):
                return None
            reference = r.data_ptr()
        elif not _in_one_order(held, held):
            return None
        shared |= current == reference
        misaligned |= (current | reference) % _ALIGNMENT
        sizes.append(held.numel())
        addresses[0].append(current)
        addresses[1].append(reference)
    if dtype not in _DTYPES:  # or nothing is reached
        return None
    if shared:
        raise EngramError(SHARED_BUFFERS)
    from engram.kernels.rows import Scattered

    given = (tuple(addresses[0]),) if alone else (tuple(addresses[0]), tuple(addresses[1]))
    where = device, stream
    tables = _addresses(given, *where), _pieces(tuple(sizes), *where)
    return ScatteredRows(Scattered(*tables, dtype, not misaligned), mixture)


def _is_one_of(gradient: Tensor, dtype: torch.dtype, place: int) -> bool:
    """Whether a gradient is a plain tensor of a type and on a device."""
    return (
        gradient.dtype is dtype
        and gradient.get_device() == place
        and type(gradient) is Tensor
        and gradient.layout is torch.strided
    )


def _stream_in_use(device: torch.device) -> int | None:
    """Return which stream of the device is in use; None if what it does is being captured.

    A graph would go on to read the addresses of the step that was captured.
    """
    if torch.cuda.is_current_stream_capturing():
        return None
    return torch.cuda.current_stream(device).cuda_stream


def _in_one_order(one: Tensor, other: Tensor) -> bool:
    """Whether the elements of both lie in the same order and without gaps, as channels-last do."""
    if one.is_contiguous() and other.is_contiguous():
        return True
    order = sorted(range(one.dim()), key=one.stride, reverse=True)
    return one.stride() == other.stride() and one.permute(order).is_contiguous()


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
