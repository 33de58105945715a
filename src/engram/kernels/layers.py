"""The kernels of `engram.lab.networks`: fully connected layers, and batch norm in training.

A layer's matrix products are each one kernel with what belongs to them. Batch norm has the ReLU
behind it and what is added before that, backward too; its images are matrices of pixels x channels,
and lie in memory channel by channel within a pixel.

Triton comes with torch for GPUs. Nothing here is imported without it.
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

_TILES = {"linear": (32, 64), "rectified": (32, 64), "masked": (64, 64), "summed": (64, 32)}
_LEAST = 16  # rows, columns and depth of the smallest product that a GPU's tensor cores take
_DEPTH = 32
_PROGRAMS = 1056  # that share a batch of images out where its pixels are summed
_ADDED = tl.constexpr(512)  # programs whose sums are added at once
_FINISHED_EACH = 16  # channels whose sums one program adds


def layer(inputs: Tensor, weight: Tensor, bias: Tensor, *, rectify: bool, tf32: bool) -> Tensor:
    """Return x W + b, or its ReLU, for inputs [R, B, n], weights [R, n, m] and biases [R, 1, m]."""
    result = inputs.new_empty(*inputs.shape[:2], weight.shape[2])
    _multiply("rectified" if rectify else "linear", inputs, weight, result, bias, tf32=tf32)
    return result


def grad_input(gradient: Tensor, weight: Tensor, hidden: Tensor, *, tf32: bool) -> Tensor:
    """Return the gradient before a layer, [R, B, n], given the one behind it, [R, B, m].

    The layer's inputs ``hidden`` came out of a ReLU: where they are 0, so is the gradient.
    """
    result = gradient.new_empty(hidden.shape)
    _multiply("masked", gradient, weight.transpose(1, 2), result, hidden, tf32=tf32)
    return result


def grad_weight(inputs: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor) -> None:
    """Write a layer's gradients, xᵀ g and the sum of g, into ``weight`` and ``bias``.

    Inputs [R * groups, B, n] and gradients are of every run's groups one after the other, the
    others [R, groups, n, m] and [R, groups, 1, m] lie anywhere.
    """
    _multiply("summed", inputs.transpose(1, 2), gradient, weight, bias, tf32=False)


def _multiply(kind: str, a: Tensor, b: Tensor, c: Tensor, beside: Tensor, *, tf32: bool) -> None:
    """Multiply, and write to c and read or write beside it, [R, groups, ...] or [R, ...]."""
    (runs, rows, depth), columns = a.shape, b.shape[2]
    if c.ndim == b.ndim:
        c, beside = c.unsqueeze(1), beside.unsqueeze(1)
    m, n, k, warps, stages = _tile(kind, rows, columns, depth)
    # Three products of numbers cut in two halves are as exact as one product of float32.
    with torch.cuda.device_of(c):  # kernels go to the device in use
        _product[(triton.cdiv(rows, m) * triton.cdiv(columns, n), runs)](
            *(argument for tensor in (a, b, c, beside) for argument in (tensor, *tensor.stride())),
            *(c.shape[1], rows, columns, depth),
            KIND=kind,
            PRECISION="tf32" if tf32 else "tf32x3",
            EVEN=rows % m == 0 and columns % n == 0 and depth % k == 0,
            M=m,
            N=n,
            K=k,
            num_warps=warps,
            num_stages=stages,
        )


def _tile(kind: str, rows: int, columns: int, depth: int) -> tuple[int, int, int, int, int]:
    """Return a tile's rows, columns and depth, its warps and its stages: found by trial."""
    m, n = _TILES[kind]
    if rows <= _LEAST:
        m, n = _LEAST, 32
    if columns <= _LEAST:
        n = _LEAST
    few = m * n <= 32 * _LEAST
    if depth <= _LEAST:
        return m, n, _LEAST, 2 if few else 4, 1
    return m, n, _DEPTH, 2 if few else 4, 4 if few else 3


@triton.jit
def _product(
    a,
    a_run,
    a_row,
    a_column,
    b,
    b_run,
    b_row,
    b_column,
    c,
    c_run,
    c_group,
    c_row,
    c_column,
    beside,
    beside_run,
    beside_group,
    beside_row,
    beside_column,
    groups,
    rows,
    columns,
    depth,
    KIND: tl.constexpr,
    PRECISION: tl.constexpr,
    EVEN: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    run = tl.program_id(1).to(tl.int64)  # offsets of many runs exceed 32 bits
    across = tl.cdiv(columns, N)
    m = tl.program_id(0) // across * M + tl.arange(0, M)
    n = tl.program_id(0) % across * N + tl.arange(0, N)
    k = tl.arange(0, K)
    row = m[:, None].to(tl.int64)  # and so do those of many examples
    left = a + run * a_run + row * a_row + k[None, :] * a_column
    right = b + run * b_run + k[:, None] * b_row + n[None, :] * b_column
    product = tl.zeros([M, N], tl.float32)
    seen = tl.zeros([K, N], tl.float32)
    for start in range(0, depth, K):
        if EVEN:
            x = tl.load(left)
            y = tl.load(right)
        else:
            inside = k < depth - start
            x = tl.load(left, mask=(m[:, None] < rows) & inside[None, :], other=0.0)
            y = tl.load(right, mask=inside[:, None] & (n[None, :] < columns), other=0.0)
        product = tl.dot(x, y, product, input_precision=PRECISION)
        if KIND == "summed":
            seen += y
        left += K * a_column
        right += K * b_row
    here = (m[:, None] < rows) & (n[None, :] < columns)
    beside += run // groups * beside_run + run % groups * beside_group
    if KIND == "masked":
        places = beside + row * beside_row + n[None, :] * beside_column
        hidden = tl.load(places, mask=here, other=0.0)
        product = tl.where(hidden <= 0, 0.0, product)
    elif KIND == "summed":
        if tl.program_id(0) < across:  # all rows of tiles have seen the same
            tl.store(beside + n * beside_column, tl.sum(seen, 0), mask=n < columns)
    else:
        bias = tl.load(beside + n * beside_column, mask=n < columns, other=0.0)
        product += bias[None, :]
    if KIND == "rectified":
        product = tl.where(product <= 0, 0.0, product)  # what is not a number stays so
    c += run // groups * c_run + run % groups * c_group
    tl.store(c + row * c_row + n[None, :] * c_column, product, mask=here)


def norm_forward(
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

    That is the mean and the inverse of the standard deviation, for backward, and the line
    a x + b that the norm is. The running ``mean`` and ``variance`` are moved.
    """
    tiles = _Tiles.of(inputs)
    sums, output = tiles.sums(inputs), torch.empty_like(inputs)
    found = weight.new_empty(4, len(weight))
    programs = sums.shape[1]
    with torch.cuda.device_of(inputs):  # kernels go to the device in use
        _measure[(programs, tiles.across)](inputs, sums, *tiles.shape, **tiles.tile)
        _finish_statistics[(tiles.finishing_programs,)](
            *(sums, programs, inputs, weight, bias, mean, variance, found, momentum, epsilon),
            *tiles.shape,
            CHANNELS=_FINISHED_EACH,
        )
        _normalise[tiles.grid](
            *(inputs, inputs if beside is None else beside, found, output, *tiles.shape),
            ADD=beside is not None,
            **tiles.tile,
        )
    return output, found


def norm_backward(
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
    tiles = _Tiles.of(inputs)
    sums, at_inputs = tiles.sums(inputs), torch.empty_like(inputs)
    kept = torch.empty_like(inputs) if beside or other is not None else None
    learned, line = weight.new_empty(2, len(weight)), weight.new_empty(3, len(weight))
    programs = sums.shape[1]
    with torch.cuda.device_of(inputs):  # kernels go to the device in use
        _measure_gradients[(programs, tiles.across)](
            *(gradient, gradient if other is None else other, inputs, output, found),
            *(inputs if kept is None else kept, sums, *tiles.shape),
            BESIDE=beside,
            TWO=other is not None,
            **tiles.tile,
        )
        _finish_gradients[(tiles.finishing_programs,)](
            *(sums, programs, weight, found, learned, line, *tiles.shape), CHANNELS=_FINISHED_EACH
        )
        _backward[tiles.grid](
            *(gradient if kept is None else kept, inputs, found, line, at_inputs, *tiles.shape),
            KEPT=kept is not None,
            **tiles.tile,
        )
    return at_inputs, learned, kept if beside else None


class _Tiles(NamedTuple):
    """How images are cut: their pixels and channels, and those of one tile."""

    pixels: int
    channels: int
    tile: dict[str, int]

    @classmethod
    def of(cls, images: Tensor) -> _Tiles:
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
    def finishing_programs(self) -> int:
        """How many programs add up what the others have summed, `_FINISHED_EACH` channels each."""
        count: int = triton.cdiv(self.channels, _FINISHED_EACH)
        return count

    @property
    def across(self) -> int:
        """How many tiles the channels take."""
        count: int = triton.cdiv(self.channels, self.tile["CHANNELS"])
        return count

    def sums(self, images: Tensor) -> Tensor:
        """Allocate two sums of every channel, by each program that has a share in them."""
        programs = min(max(1, _PROGRAMS // self.across), self.grid[0])
        return images.new_empty(2, programs, self.channels, dtype=torch.float32)


@triton.jit
def _measure(inputs, sums, pixels, channels, PIXELS: tl.constexpr, CHANNELS: tl.constexpr):
    """Sum x − k and (x − k)² of a program's pixels, where k is the first pixel's x.

    The variance is the second sum's mean without the square of the first's: in float32 it is exact
    to about 1e-7 (k − mean)² / variance, and beyond about 1e19 it is not a number.
    """
    channel, known, place = _places(channels, PIXELS, CHANNELS)
    shift = _numbers(inputs, channel, known)
    total = tl.zeros([PIXELS, CHANNELS], tl.float32)
    square = tl.zeros([PIXELS, CHANNELS], tl.float32)
    inputs += _beginning(channels, PIXELS)
    for earlier in range(0, pixels, tl.num_programs(0) * PIXELS):
        there = _inside(earlier, pixels, known, PIXELS)
        x = tl.where(there, _numbers(inputs, place, there) - shift[None, :], 0.0)
        total += x
        square += x * x
        inputs += _jump(channels, PIXELS)
    _put(sums, total, square, channel, known, channels)


@triton.jit(do_not_specialize_on_alignment=["weight", "bias", "mean", "variance"])
def _finish_statistics(
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
    """Write what the norm found, and move the running averages."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    shift = _added(sums, programs, channel, channels, CHANNELS) / pixels
    square = _added(sums + programs * channels, programs, channel, channels, CHANNELS) / pixels
    centre = _numbers(inputs, channel, known) + shift
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
    channel, known, place = _places(channels, PIXELS, CHANNELS)
    factor = _row(found, 2, channels, channel, known)
    offset = _row(found, 3, channels, channel, known)
    there, start = _inside(0, pixels, known, PIXELS), _beginning(channels, PIXELS)
    y = _numbers(inputs, start + place, there) * factor[None, :] + offset[None, :]
    if ADD:
        y += _numbers(beside, start + place, there)
    tl.store(output + start + place, tl.where(y <= 0, 0.0, y), mask=there)


@triton.jit
def _measure_gradients(
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

    Where g takes more than the gradient and x to compute, it is kept for `_backward`. Without
    anything beside, x alone determines what the ReLU was given.
    """
    channel, known, place = _places(channels, PIXELS, CHANNELS)
    centre = _row(found, 0, channels, channel, known)
    factor = _row(found, 2, channels, channel, known)
    offset = _row(found, 3, channels, channel, known)
    total = tl.zeros([PIXELS, CHANNELS], tl.float32)
    product = tl.zeros([PIXELS, CHANNELS], tl.float32)
    start = _beginning(channels, PIXELS)
    for earlier in range(0, pixels, tl.num_programs(0) * PIXELS):
        there = _inside(earlier, pixels, known, PIXELS)
        g = _numbers(gradient, start + place, there)
        x = _numbers(inputs, start + place, there)
        if BESIDE:
            y = _numbers(output, start + place, there)
        else:
            y = x * factor[None, :] + offset[None, :]
        if TWO:
            g += _numbers(other, start + place, there)
        g = tl.where(y <= 0, 0.0, g)
        if BESIDE or TWO:
            rounded = g.to(kept.dtype.element_ty)
            tl.store(kept + start + place, rounded, mask=there)
            g = rounded.to(tl.float32)
        total += g
        product += g * (x - centre[None, :])
        start += _jump(channels, PIXELS)
    _put(sums, total, product, channel, known, channels)


@triton.jit(do_not_specialize_on_alignment=["weight"])
def _finish_gradients(
    sums, programs, weight, found, learned, line, pixels, channels, CHANNELS: tl.constexpr
):
    """Write the gradients of weight and bias, and the line p g + q x + s that the one at x is."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    total = _added(sums, programs, channel, channels, CHANNELS)
    product = _added(sums + programs * channels, programs, channel, channels, CHANNELS)
    centre = _row(found, 0, channels, channel, known)
    inverse = _row(found, 1, channels, channel, known)
    tl.store(learned + channel, product * inverse, mask=known)
    tl.store(learned + channels + channel, total, mask=known)
    factor = _row(weight, 0, channels, channel, known) * inverse
    slope = -factor * inverse * inverse * product / pixels
    tl.store(line + channel, factor, mask=known)
    tl.store(line + channels + channel, slope, mask=known)
    tl.store(line + 2 * channels + channel, -factor * total / pixels - slope * centre, mask=known)


@triton.jit
def _backward(
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
    channel, known, place = _places(channels, PIXELS, CHANNELS)
    there, start = _inside(0, pixels, known, PIXELS), _beginning(channels, PIXELS)
    g = _numbers(gradient, start + place, there)
    x = _numbers(inputs, start + place, there)
    if not KEPT:
        factor = _row(found, 2, channels, channel, known)
        offset = _row(found, 3, channels, channel, known)
        g = tl.where(x * factor[None, :] + offset[None, :] <= 0, 0.0, g)
    at_g = _row(line, 0, channels, channel, known)
    slope = _row(line, 1, channels, channel, known)
    rest = _row(line, 2, channels, channel, known)
    at_x = at_g[None, :] * g + slope[None, :] * x + rest[None, :]
    tl.store(at_inputs + start + place, at_x, mask=there)


@triton.jit
def _places(channels, PIXELS: tl.constexpr, CHANNELS: tl.constexpr):
    """Return a program's channels, which of them there are, and the places of a tile's numbers.

    The places count from the tile's first pixel on.
    """
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    return channel, channel < channels, tl.arange(0, PIXELS)[:, None] * channels + channel[None, :]


@triton.jit
def _beginning(channels, PIXELS: tl.constexpr):
    """Return where a program's first tile begins; the place may exceed 32 bits."""
    return tl.program_id(0).to(tl.int64) * PIXELS * channels


@triton.jit
def _jump(channels, PIXELS: tl.constexpr):
    """Return how far a program's next tile is, behind one of every other program."""
    return tl.num_programs(0).to(tl.int64) * PIXELS * channels


@triton.jit
def _inside(earlier, pixels, known, PIXELS: tl.constexpr):
    """Return which numbers of a program's tile there are, given the pixels of earlier turns."""
    pixel = earlier + tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    return (pixel < pixels)[:, None] & known[None, :]


@triton.jit
def _numbers(images, place, there):
    """Load a tile's numbers."""
    return tl.load(images + place, mask=there, other=0.0).to(tl.float32)


@triton.jit
def _row(table, number, channels, channel, known):
    """Load a program's channels of one row of a table."""
    return tl.load(table + number * channels + channel, mask=known, other=0.0)


@triton.jit
def _put(sums, one, other, channel, known, channels):
    """Leave a program's two sums, [pixels, channels] each."""
    mine = sums + tl.program_id(0) * channels + channel
    tl.store(mine, tl.sum(one, 0), mask=known)
    tl.store(mine + tl.num_programs(0) * channels, tl.sum(other, 0), mask=known)


@triton.jit
def _added(sums, programs, channel, channels, CHANNELS: tl.constexpr):
    """Return what all programs have left of one sum."""
    total = tl.zeros([_ADDED, CHANNELS], tl.float32)
    for start in range(0, programs, _ADDED):
        program = start + tl.arange(0, _ADDED)
        there = (program < programs)[:, None] & (channel < channels)[None, :]
        place = program[:, None] * channels + channel[None, :]
        total += tl.load(sums + place, mask=there, other=0.0)
    return tl.sum(total, 0)
