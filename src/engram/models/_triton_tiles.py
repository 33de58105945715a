"""Images as matrices of pixels x channels, and sums over their pixels, for kernels of norms.

Images lie in memory channel by channel within a pixel. Triton comes with torch for GPUs. Nothing
here is imported without it.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

from typing import NamedTuple

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_PROGRAMS = 1056  # that share a batch of images out where its pixels are summed
_ADDED = tl.constexpr(512)  # programs whose sums are added at once
SETTLED = 16  # channels whose sums one program adds


class Tiles(NamedTuple):
    """How images are cut: their pixels and channels, and those of one tile."""

    pixels: int
    channels: int
    tile: dict[str, int]

    @classmethod
    def of(cls, images: Tensor) -> Tiles:
        """Cut a batch of images [B, channels, height, width]."""
        channels = images.shape[1]
        width = min(64, max(16, triton.next_power_of_2(channels)))
        return cls(images.numel() // channels, channels, {"PIXELS": 32, "CHANNELS": width})

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of pixels and channels."""
        return self.pixels, self.channels

    @property
    def grid(self) -> tuple[int, int]:
        """Every tile's program."""
        return triton.cdiv(self.pixels, self.tile["PIXELS"]), self.across

    @property
    def settlers(self) -> int:
        """How many programs add up what the others have summed, `SETTLED` channels each."""
        count: int = triton.cdiv(self.channels, SETTLED)
        return count

    @property
    def across(self) -> int:
        """How many tiles the channels take."""
        count: int = triton.cdiv(self.channels, self.tile["CHANNELS"])
        return count

    def sums(self, images: Tensor) -> Tensor:
        """Return room for two sums of every channel, by each program that has a share in them."""
        programs = min(max(1, _PROGRAMS // self.across), self.grid[0])
        return images.new_empty(2, programs, self.channels, dtype=torch.float32)


@triton.jit
def places(channels, PIXELS: tl.constexpr, CHANNELS: tl.constexpr):
    """Return a program's channels, which of them there are, and the places of a tile's numbers.

    The places count from the tile's first pixel on.
    """
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    return channel, channel < channels, tl.arange(0, PIXELS)[:, None] * channels + channel[None, :]


@triton.jit
def beginning(channels, PIXELS: tl.constexpr):
    """Return where a program's first tile begins; the place may exceed 32 bits."""
    return tl.program_id(0).to(tl.int64) * PIXELS * channels


@triton.jit
def jump(channels, PIXELS: tl.constexpr):
    """Return how far a program's next tile is, behind one of every other program."""
    return tl.num_programs(0).to(tl.int64) * PIXELS * channels


@triton.jit
def inside(earlier, pixels, known, PIXELS: tl.constexpr):
    """Return which numbers of a program's tile there are, given the pixels of earlier turns."""
    pixel = earlier + tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    return (pixel < pixels)[:, None] & known[None, :]


@triton.jit
def numbers(images, place, there):
    """Load a tile's numbers."""
    return tl.load(images + place, mask=there, other=0.0).to(tl.float32)


@triton.jit
def row(table, number, channels, channel, known):
    """Load a program's channels of one row of a table."""
    return tl.load(table + number * channels + channel, mask=known, other=0.0)


@triton.jit
def put(sums, one, other, channel, known, channels):
    """Leave a program's two sums, [pixels, channels] each."""
    mine = sums + tl.program_id(0) * channels + channel
    tl.store(mine, tl.sum(one, 0), mask=known)
    tl.store(mine + tl.num_programs(0) * channels, tl.sum(other, 0), mask=known)


@triton.jit
def added(sums, programs, channel, channels, CHANNELS: tl.constexpr):
    """Return what all programs have left of one sum."""
    total = tl.zeros([_ADDED, CHANNELS], tl.float32)
    for start in range(0, programs, _ADDED):
        program = start + tl.arange(0, _ADDED)
        there = (program < programs)[:, None] & (channel < channels)[None, :]
        place = program[:, None] * channels + channel[None, :]
        total += tl.load(sums + place, mask=there, other=0.0)
    return tl.sum(total, 0)
