"""Pixels as numbers, by a kernel that loads and stores many of them at a time.

Triton comes with torch for GPUs. Nothing here is imported without it.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_BLOCK = 2048  # 16 pixels, the most that are loaded at once, for each thread of a program


def scaled(pixels: Tensor, factor: float) -> Tensor:
    """Return ``factor`` times pixels of 8 bits, in float32."""
    pixels = pixels.contiguous()
    result = torch.empty(pixels.shape, dtype=torch.float32, device=pixels.device)
    with torch.cuda.device_of(pixels):  # kernels go to the device in use
        _scale[(triton.cdiv(pixels.numel(), _BLOCK),)](
            pixels, result, pixels.numel(), factor, BLOCK=_BLOCK
        )
    return result


@triton.jit
def _scale(pixels, result, count, factor, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    numbers = tl.load(pixels + place, mask=inside, other=0).to(tl.float32)
    tl.store(result + place, numbers * factor, mask=inside)
