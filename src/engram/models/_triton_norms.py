"""Batch norm in training with the ReLU behind it, and with what is added before that.

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


def forward(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    beside: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Return relu(norm(x) + beside) and what the norm found, [4, channels].

    That is the mean and the inverse of the standard deviation, for the way back, and the line
    a x + b that the norm is. The running ``mean`` and ``variance`` are moved.
    """
    tiles = Tiles.of(inputs)
    sums, output = tiles.sums(inputs), torch.empty_like(inputs)
    found = weight.new_empty(4, len(weight))
    programs = sums.shape[1]
    with torch.cuda.device_of(inputs):  # kernels go to the device in use
        _measure[(programs, tiles.across)](inputs, sums, *tiles.shape, **tiles.tile)
        _settle[(tiles.settlers,)](
            *(sums, programs, inputs, weight, bias, mean, variance, found, momentum, epsilon),
            *tiles.shape,
            CHANNELS=SETTLED,
        )
        _normalise[tiles.grid](
            *(inputs, inputs if beside is None else beside, found, output, *tiles.shape),
            ADD=beside is not None,
            **tiles.tile,
        )
    return output, found


@triton.jit
def _measure(inputs, sums, pixels, channels, PIXELS: tl.constexpr, CHANNELS: tl.constexpr):
    """Sum x − k and (x − k)² of a program's pixels, where k is the first pixel's x.

    The variance is the second sum's mean without the square of the first's: in float32 it is exact
    to about 1e-7 (k − mean)² / variance, and beyond about 1e19 it is not a number.
    """
    channel, known, place = places(channels, PIXELS, CHANNELS)
    shift = numbers(inputs, channel, known)
    total = tl.zeros([PIXELS, CHANNELS], tl.float32)
    square = tl.zeros([PIXELS, CHANNELS], tl.float32)
    inputs += beginning(channels, PIXELS)
    for earlier in range(0, pixels, tl.num_programs(0) * PIXELS):
        there = inside(earlier, pixels, known, PIXELS)
        x = tl.where(there, numbers(inputs, place, there) - shift[None, :], 0.0)
        total += x
        square += x * x
        inputs += jump(channels, PIXELS)
    put(sums, total, square, channel, known, channels)


@triton.jit(do_not_specialize_on_alignment=["weight", "bias", "mean", "variance"])
def _settle(
    sums,
    programs,
    inputs,
    weight,
    bias,
    mean,
    variance,
    found,
    momentum,
    epsilon,
    pixels,
    channels,
    CHANNELS: tl.constexpr,
):
    """Tell what the norm found, and move the running averages."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    shift = added(sums, programs, channel, channels, CHANNELS) / pixels
    square = added(sums + programs * channels, programs, channel, channels, CHANNELS) / pixels
    centre = numbers(inputs, channel, known) + shift
    spread = square - shift * shift
    spread = tl.where(spread < 0, 0.0, spread)  # what is no number stays so
    inverse = 1 / tl.sqrt(spread + epsilon)
    factor = tl.load(weight + channel, mask=known, other=0.0) * inverse
    offset = tl.load(bias + channel, mask=known, other=0.0) - centre * factor
    tl.store(found + channel, centre, mask=known)
    tl.store(found + channels + channel, inverse, mask=known)
    tl.store(found + 2 * channels + channel, factor, mask=known)
    tl.store(found + 3 * channels + channel, offset, mask=known)
    old = tl.load(mean + channel, mask=known, other=0.0)
    tl.store(mean + channel, old + momentum * (centre - old), mask=known)
    old = tl.load(variance + channel, mask=known, other=0.0)
    unbiased = spread * (pixels / tl.maximum(pixels - 1.0, 1.0))
    tl.store(variance + channel, old + momentum * (unbiased - old), mask=known)


@triton.jit
def _normalise(
    inputs,
    beside,
    found,
    output,
    pixels,
    channels,
    ADD: tl.constexpr,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    channel, known, place = places(channels, PIXELS, CHANNELS)
    factor = row(found, 2, channels, channel, known)
    offset = row(found, 3, channels, channel, known)
    there, start = inside(0, pixels, known, PIXELS), beginning(channels, PIXELS)
    y = numbers(inputs, start + place, there) * factor[None, :] + offset[None, :]
    if ADD:
        y += numbers(beside, start + place, there)
    tl.store(output + start + place, tl.where(y <= 0, 0.0, y), mask=there)
