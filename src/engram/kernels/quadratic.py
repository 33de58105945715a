"""The rounds of small quadratic programs, all of them in one kernel: see engram.rules.

Triton comes with torch for GPUs. Nothing here is imported without it.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_LEAST = 16
_WARPS = {16: 1, 32: 4, 64: 8}  # by a tile's width


def pivoted(matrix: Tensor, linear: Tensor, rounds: int, tolerance: float) -> Tensor:
    """Return x [problems, n], n at most 63, where principal pivoting ends, in so many rounds.

    A problem's tableau is that of `engram.rules.gem`, without the row that is
    chosen once a problem is solved: here each problem ends by itself.
    """
    problems, size = linear.shape
    width = max(_LEAST, triton.next_power_of_2(size + 1))
    x = torch.empty_like(linear, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(linear):  # kernels go to the device in use
        _pivot[(problems,)](
            *(matrix.contiguous(), linear.contiguous(), x, size, rounds),
            TOLERANCE=tolerance,
            WIDTH=width,
            num_warps=_WARPS[width],
        )
    return x


@triton.jit
def _pivot(matrix, linear, x, size, rounds, TOLERANCE: tl.constexpr, WIDTH: tl.constexpr):
    problem = tl.program_id(0).to(tl.int64)
    entry = tl.arange(0, WIDTH)
    row, column = entry[:, None], entry[None, :]
    slopes = linear + problem * size
    table = tl.load(
        matrix + problem * size * size + row * size + column,
        mask=(row < size) & (column < size),
        other=0.0,
    )
    table += tl.load(slopes + row, mask=(row < size) & (column == size), other=0.0)
    table += tl.load(slopes + column, mask=(row == size) & (column < size), other=0.0)
    number = tl.full((), 0, tl.int32)
    chosen, wrong = _choose(table, size, number >= size // 2, TOLERANCE, WIDTH)
    while wrong & (number < rounds):
        across = tl.sum(tl.where(row == chosen, table, 0.0), 0)
        down = tl.sum(tl.where(column == chosen, table, 0.0), 1)
        here = (entry == chosen).to(tl.float64)
        pivot = tl.sum(across * here, 0)
        change = (down + here)[:, None] * ((across - here) / pivot)[None, :]
        table -= change
        number += 1
        chosen, wrong = _choose(table, size, number >= size // 2, TOLERANCE, WIDTH)
    value = tl.sum(tl.where(column == size, table, 0.0), 1)
    slope = tl.sum(tl.where(row == size, table, 0.0), 0)
    held = tl.maximum(tl.minimum(value, -slope), 0.0)
    tl.store(x + problem * size + entry, held, mask=entry < size)


@triton.jit
def _choose(table, size, by_gain, TOLERANCE: tl.constexpr, WIDTH: tl.constexpr):
    """Return the entry that is most wrong, and whether it is by more than the tolerance."""
    entry = tl.arange(0, WIDTH)
    row, column = entry[:, None], entry[None, :]
    value = tl.sum(tl.where(column == size, table, 0.0), 1)
    pivot = tl.sum(tl.where(row == column, table, 0.0), 1)
    weight = tl.where(by_gain, 1 + pivot, 1.0)
    score = tl.where(entry < size, value / tl.sqrt(weight), float("inf"))
    allowed = tl.where(by_gain, TOLERANCE * 0.7071067811865476, TOLERANCE)
    return tl.argmin(score, 0), tl.min(score, 0) <= -allowed
