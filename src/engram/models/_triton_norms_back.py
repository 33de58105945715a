"""The way back through a ReLU and a batch norm before it.

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

from engram.models._triton_tiles import (
    SETTLED,
    Tiles,
    added,
    beginning,
    inside,
    jump,
    numbers,
    places,
    put,
    row,
)


def backward(
    gradient: Tensor,
    other: Tensor | None,
    inputs: Tensor,
    output: Tensor,
    weight: Tensor,
    found: Tensor,
    *,
    beside: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradient at x, at weight and bias [2, channels], and at what was ``beside``.

    The gradient at the output is the sum of the two that are given.
    """
    tiles = Tiles.of(inputs)
    sums, at_inputs = tiles.sums(inputs), torch.empty_like(inputs)
    kept = torch.empty_like(inputs) if beside or other is not None else None
    learned, line = weight.new_empty(2, len(weight)), weight.new_empty(3, len(weight))
    programs = sums.shape[1]
    with torch.cuda.device_of(inputs):  # kernels go to the device in use
        _measure[(programs, tiles.across)](
            *(gradient, gradient if other is None else other, inputs, output, found),
            *(inputs if kept is None else kept, sums, *tiles.shape),
            BESIDE=beside,
            TWO=other is not None,
            **tiles.tile,
        )
        _settle[(tiles.settlers,)](
            *(sums, programs, weight, found, learned, line, *tiles.shape), CHANNELS=SETTLED
        )
        _go_back[tiles.grid](
            *(gradient if kept is None else kept, inputs, found, line, at_inputs, *tiles.shape),
            KEPT=kept is not None,
            **tiles.tile,
        )
    return at_inputs, learned, kept if beside else None


@triton.jit
def _measure(
    gradient,
    other,
    inputs,
    output,
    found,
    kept,
    sums,
    pixels,
    channels,
    BESIDE: tl.constexpr,
    TWO: tl.constexpr,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Sum g and g (x − mean) of a program's pixels, g being the gradient before the ReLU.

    Where g takes more than the gradient and x to compute, it is kept for `_go_back`. Without
    anything beside, x alone tells what the ReLU was given.
    """
    channel, known, place = places(channels, PIXELS, CHANNELS)
    centre = row(found, 0, channels, channel, known)
    factor = row(found, 2, channels, channel, known)
    offset = row(found, 3, channels, channel, known)
    total = tl.zeros([PIXELS, CHANNELS], tl.float32)
    product = tl.zeros([PIXELS, CHANNELS], tl.float32)
    start = beginning(channels, PIXELS)
    for earlier in range(0, pixels, tl.num_programs(0) * PIXELS):
        there = inside(earlier, pixels, known, PIXELS)
        g = numbers(gradient, start + place, there)
        x = numbers(inputs, start + place, there)
        if BESIDE:
            y = numbers(output, start + place, there)
        else:
            y = x * factor[None, :] + offset[None, :]
        if TWO:
            g += numbers(other, start + place, there)
        g = tl.where(y <= 0, 0.0, g)
        if BESIDE or TWO:
            rounded = g.to(kept.dtype.element_ty)
            tl.store(kept + start + place, rounded, mask=there)
            g = rounded.to(tl.float32)
        total += g
        product += g * (x - centre[None, :])
        start += jump(channels, PIXELS)
    put(sums, total, product, channel, known, channels)


@triton.jit(do_not_specialize_on_alignment=["weight"])
def _settle(sums, programs, weight, found, learned, line, pixels, channels, CHANNELS: tl.constexpr):
    """Tell the gradients of weight and bias, and the line p g + q x + s that the one at x is."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    total = added(sums, programs, channel, channels, CHANNELS)
    product = added(sums + programs * channels, programs, channel, channels, CHANNELS)
    centre = row(found, 0, channels, channel, known)
    inverse = row(found, 1, channels, channel, known)
    tl.store(learned + channel, product * inverse, mask=known)
    tl.store(learned + channels + channel, total, mask=known)
    factor = row(weight, 0, channels, channel, known) * inverse
    slope = -factor * inverse * inverse * product / pixels
    tl.store(line + channel, factor, mask=known)
    tl.store(line + channels + channel, slope, mask=known)
    tl.store(line + 2 * channels + channel, -factor * total / pixels - slope * centre, mask=known)


@triton.jit
def _go_back(
    gradient,
    inputs,
    found,
    line,
    at_inputs,
    pixels,
    channels,
    KEPT: tl.constexpr,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    channel, known, place = places(channels, PIXELS, CHANNELS)
    there, start = inside(0, pixels, known, PIXELS), beginning(channels, PIXELS)
    g = numbers(gradient, start + place, there)
    x = numbers(inputs, start + place, there)
    if not KEPT:
        factor = row(found, 2, channels, channel, known)
        offset = row(found, 3, channels, channel, known)
        g = tl.where(x * factor[None, :] + offset[None, :] <= 0, 0.0, g)
    at_g = row(line, 0, channels, channel, known)
    slope = row(line, 1, channels, channel, known)
    rest = row(line, 2, channels, channel, known)
    at_x = at_g[None, :] * g + slope[None, :] * x + rest[None, :]
    tl.store(at_inputs + start + place, at_x, mask=there)
