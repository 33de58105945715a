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

from engram.models._triton_tiles import Tiles, added, beginning, inside, jump, places, put


def backward(
    gradient: Tensor, inputs: Tensor, output: Tensor, weight: Tensor, found: Tensor, *, beside: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradient at x, at weight and bias [2, channels], and at what was ``beside``."""
    tiles = Tiles.of(inputs)
    sums, at_inputs = tiles.sums(inputs), torch.empty_like(inputs)
    at_beside = torch.empty_like(inputs) if beside else None
    learned, line = weight.new_empty(2, len(weight)), weight.new_empty(3, len(weight))
    programs = sums.shape[1]
    with torch.cuda.device_of(inputs):  # kernels go to the device in use
        _measure[(programs, tiles.across)](
            *(gradient, inputs, output, found, sums, *tiles.shape), **tiles.tile
        )
        _settle[(tiles.across,)](
            *(sums, programs, weight, found, learned, line, *tiles.shape),
            CHANNELS=tiles.tile["CHANNELS"],
        )
        _go_back[tiles.grid](
            *(gradient, inputs, output, line, at_inputs),
            *(at_inputs if at_beside is None else at_beside, *tiles.shape),
            ADD=beside,
            **tiles.tile,
        )
    return at_inputs, learned, at_beside


@triton.jit
def _measure(
    gradient,
    inputs,
    output,
    found,
    sums,
    pixels,
    channels,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Sum g and g (x − mean) of a program's pixels, g being the gradient before the ReLU."""
    channel, known, place = places(channels, PIXELS, CHANNELS)
    centre = tl.load(found + channel, mask=known, other=0.0)
    total = tl.zeros([PIXELS, CHANNELS], tl.float32)
    product = tl.zeros([PIXELS, CHANNELS], tl.float32)
    start = beginning(channels, PIXELS)
    for earlier in range(0, pixels, tl.num_programs(0) * PIXELS):
        there = inside(earlier, pixels, known, PIXELS)
        y = tl.load(output + start + place, mask=there, other=0.0)
        g = tl.load(gradient + start + place, mask=there, other=0.0).to(tl.float32)
        x = tl.load(inputs + start + place, mask=there, other=0.0).to(tl.float32)
        g = tl.where(y <= 0, 0.0, g)
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
    centre = tl.load(found + channel, mask=known, other=0.0)
    inverse = tl.load(found + channels + channel, mask=known, other=0.0)
    tl.store(learned + channel, product * inverse, mask=known)
    tl.store(learned + channels + channel, total, mask=known)
    factor = tl.load(weight + channel, mask=known, other=0.0) * inverse
    slope = -factor * inverse * inverse * product / pixels
    tl.store(line + channel, factor, mask=known)
    tl.store(line + channels + channel, slope, mask=known)
    tl.store(line + 2 * channels + channel, -factor * total / pixels - slope * centre, mask=known)


@triton.jit
def _go_back(
    gradient,
    inputs,
    output,
    line,
    at_inputs,
    at_beside,
    pixels,
    channels,
    ADD: tl.constexpr,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    channel, known, place = places(channels, PIXELS, CHANNELS)
    factor = tl.load(line + channel, mask=known, other=0.0)
    slope = tl.load(line + channels + channel, mask=known, other=0.0)
    offset = tl.load(line + 2 * channels + channel, mask=known, other=0.0)
    there, start = inside(0, pixels, known, PIXELS), beginning(channels, PIXELS)
    y = tl.load(output + start + place, mask=there, other=0.0)
    g = tl.load(gradient + start + place, mask=there, other=0.0).to(tl.float32)
    x = tl.load(inputs + start + place, mask=there, other=0.0).to(tl.float32)
    g = tl.where(y <= 0, 0.0, g)
    if ADD:
        tl.store(at_beside + start + place, g, mask=there)
    at_x = factor[None, :] * g + slope[None, :] * x + offset[None, :]
    tl.store(at_inputs + start + place, at_x, mask=there)
