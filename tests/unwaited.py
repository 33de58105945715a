"""A CPU in the place of a GPU: a device that nobody waits for."""

import ctypes
import sys
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

import engram.kernels


def unwaited(patch):
    """Let steps on the CPU be weighed, checked and filed as a GPU's, until the patch is undone."""
    patch.setattr("engram.gradients.mixing.on_host", lambda _: False)
    for module in ("memory", "storage"):
        patch.setattr(f"engram.memory.{module}.on_host", lambda _: False)


def with_kernels(patch, kernels):
    """Let a module stand for `engram.kernels.rows`, and torch's operations for its kernels."""
    patch.setitem(sys.modules, "engram.kernels.rows", kernels)
    patch.setattr(engram.kernels, "rows", kernels, raising=False)


def scattered(patch):
    """Let rows be mixed by their addresses as well, as with Triton on a GPU."""
    unwaited(patch)
    patch.setattr("engram.gradients.scattered.triton_works", lambda _: True)
    patch.setattr(
        "engram.gradients.scattered._DTYPES", {torch.float64, torch.float32, torch.bfloat16}
    )
    patch.setattr("engram.gradients.scattered._stream_in_use", lambda _: 0)
    with_kernels(patch, Addressed("rows"))


class Addressed(ModuleType):
    """What `engram.kernels.rows` has for rows by their addresses, in plain torch and float64."""

    PIECE = 4096

    class Scattered(NamedTuple):
        addresses: Tensor
        pieces: Tensor
        dtype: torch.dtype
        aligned: bool

    def compare_scattered(self, rows, losses, *, products):
        whole = torch.stack([torch.cat(row) for row in zip(*_columns(rows), strict=True)]).double()
        values = torch.stack([*losses])
        gram = (whole @ whole.T).to(values.dtype) if products else None
        return values, gram, torch.tensor(0, dtype=torch.uint8)

    def mix_scattered(self, rows, losses, weights, marks, *, compares_losses, look):
        bad = not weights.isfinite().all() or (compares_losses and bool((losses < 0).any()))
        for places, column in zip(rows.addresses.T.tolist(), _columns(rows), strict=True):
            mixture = sum(
                weight * part.to(weight.dtype) for weight, part in zip(weights, column, strict=True)
            )
            held = _at(next(place for place in places if place), len(mixture), rows.dtype)
            held.copy_(mixture)
            bad = bad or (look and not held.isfinite().all())
        if marks is not None and bad:
            for mark in marks:
                mark.fill_(1)


def _columns(rows):
    """Return each row's part of every parameter, zeros where it has none, piece after piece."""
    sizes = dict(zip(*rows.pieces[[0, 2]].tolist(), strict=True))
    covered = dict.fromkeys(sizes, 0)
    for parameter, first, size in rows.pieces.T.tolist():
        assert first == covered[parameter]
        covered[parameter] = min(first + Addressed.PIECE, size)
    assert covered == sizes
    addresses = rows.addresses.T.tolist()
    return [
        [_at(place, sizes[number], rows.dtype) for place in addresses[number]]
        for number in range(len(addresses))
    ]


def _at(address, count, dtype):
    if not address:
        return torch.zeros(count, dtype=dtype)
    held = (ctypes.c_byte * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(held, dtype=dtype)
