"""The kernels of `engram.rules`: A-GEM, MEGA-I and MEGA-II, and the quadratic programs of GEM.

A rule for two rows is one kernel: with torch's operations it is some thirty launches. So are all
rounds of all quadratic programs. Each formula is explained in its rule, where it is written for
tensors and plain numbers alike.

Triton comes with torch for GPUs. Nothing here is imported without it.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

from functools import cache

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_MOST_PROBLEMS = 256  # of a program
_LEAST = 16  # entries of the smallest tile
_WARPS = {16: 1, 32: 4, 64: 8}  # by a tile's width


def weigh(
    formula: str,
    switches: tuple[bool, ...],
    constants: tuple[float, ...],
    losses: Tensor,
    gram: Tensor | None,
) -> Tensor:
    """Return the weights [..., 2] of losses [..., 2] and Gram matrices [..., 2, 2] of their dtype.

    ``formula`` is "agem", "mega1" or "mega2", ``switches`` what of it is chosen when it is compiled
    and ``constants`` its numbers, both in the order in which the kernels below read them. Where an
    input is not finite, both weights are NaN.
    """
    weights = torch.empty_like(losses, memory_format=torch.contiguous_format)
    count = losses.numel() // 2
    if not count:
        return weights
    block = min(triton.next_power_of_2(count), _MOST_PROBLEMS)
    first, second, third = (*switches, False, False, False)[:3]
    with torch.cuda.device_of(losses):  # kernels go to the device in use
        _weigh[(triton.cdiv(count, block),)](
            losses.contiguous(),
            losses if gram is None else gram.contiguous(),
            _on_device(constants, losses.dtype, losses.device),
            weights,
            count,
            FORMULA=formula,
            HAS_GRAM=gram is not None,
            FIRST=first,
            SECOND=second,
            THIRD=third,
            BLOCK=block,
        )
    return weights


@cache
def _on_device(constants: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # As arguments they would be rounded to float32; and they are filled on the device, for a copy
    # would let the host wait.
    numbers = [torch.full((), each, dtype=dtype, device=device) for each in constants or (0.0,)]
    return torch.stack(numbers)


@triton.jit
def _weigh(
    losses,
    gram,
    constants,
    weights,
    count,
    FORMULA: tl.constexpr,
    HAS_GRAM: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    THIRD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    problem = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = problem < count
    current = tl.load(losses + 2 * problem, mask=there, other=1.0)
    reference = tl.load(losses + 2 * problem + 1, mask=there, other=1.0)
    # x − x is 0, but NaN where x is not finite.
    trouble = (current - current) + (reference - reference)
    if HAS_GRAM:
        gg = tl.load(gram + 4 * problem, mask=there, other=1.0)
        gr = tl.load(gram + 4 * problem + 1, mask=there, other=0.0)
        rg = tl.load(gram + 4 * problem + 2, mask=there, other=0.0)
        rr = tl.load(gram + 4 * problem + 3, mask=there, other=1.0)
        trouble += (gg - gg) + (gr - gr) + (rg - rg) + (rr - rr)
    if FORMULA == "agem":
        first, second = _agem(gr, rr, constants)
    elif FORMULA == "mega1":
        first, second = _mega1(current, reference, constants, FIRST)
    else:
        first, second = _mega2(current, reference, gg, gr, rr, constants, FIRST, SECOND, THIRD)
    tl.store(weights + 2 * problem, first + trouble, mask=there)
    tl.store(weights + 2 * problem + 1, second + trouble, mask=there)


@triton.jit
def _agem(product, square, constants):
    """(1, −g·r / r·r) where g·r < 0, else (1, 0). Constants: the smallest square that counts."""
    conflict = (product < 0) & (square >= tl.load(constants))
    zero = product - product
    return zero + 1, tl.where(conflict, -_over(product, square), zero)


@triton.jit
def _mega1(current, reference, constants, PAPER: tl.constexpr):
    """(1, l_ref / l_t) or (0, 1). Constants: the threshold, of l_t if PAPER, else of l_ref."""
    threshold = tl.load(constants)
    zero = current - current
    current, reference = tl.maximum(current, zero), tl.maximum(reference, zero)
    ratio = _over(reference, current)
    both = (current > threshold) if PAPER else (reference > threshold)
    both = both & (ratio < float("inf"))
    return tl.where(both, zero + 1, zero), tl.where(both, ratio, zero + 1)


@triton.jit
def _mega2(
    current_loss,
    reference_loss,
    gg,
    gr,
    rr,
    constants,
    BALANCE: tl.constexpr,
    LIMITED: tl.constexpr,
    AREA: tl.constexpr,
):
    """Rotate g towards r; constants: tolerance, smallest square, cos and sin of the limit, side."""
    tolerance, smallest = tl.load(constants), tl.load(constants + 1)
    zero = gg - gg
    one = zero + 1
    current_length, reference_length = _root(gg), _root(rr)
    cosine = _over(_over(gr, current_length), reference_length)
    cosine = tl.minimum(tl.maximum(cosine, -one), one)
    if BALANCE:
        current, reference = tl.maximum(current_loss, zero), tl.maximum(reference_loss, zero)
        total = current + reference
        current, reference = _over(current, total), _over(reference, total)
    else:
        current, reference = zero + 0.5, zero + 0.5
    apart = current - reference
    square = apart * apart + 2 * current * reference * (1 + cosine)
    defined = (square > tolerance) & (gg >= smallest) & (rr >= smallest)
    square_sine = (1 - cosine) * (1 + cosine)
    if AREA:
        area = current_length * reference_length * _root(square_sine)
        defined = defined & (area > tl.load(constants + 4))
    length = _root(square)
    along, towards = _over(current, length), _over(reference, length)
    if LIMITED:
        limit_cosine, limit_sine = tl.load(constants + 2), tl.load(constants + 3)
        beyond = current + reference * cosine < limit_cosine * length
        defined = defined & ((square_sine > 4 * tolerance) | (beyond == 0))
        turn = _over(limit_sine + zero, _root(square_sine))
        along = tl.where(beyond, limit_cosine - turn * cosine, along)
        towards = tl.where(beyond, turn, towards)
    towards = towards * _over(current_length, reference_length)
    return tl.where(defined, along, one), tl.where(defined, towards, zero)


@triton.jit
def _over(x, y):
    """Divide, rounded as the standard has it: float32 would be divided approximately."""
    return tl.div_rn(x, y) if x.dtype == tl.float32 else x / y


@triton.jit
def _root(x):
    return tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)


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
