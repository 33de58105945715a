"""The matrix products of a fully connected layer, each with what belongs to it as one kernel.

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

_TILES = {"linear": (32, 64), "rectified": (32, 64), "masked": (64, 64), "summed": (64, 32)}
_LEAST = 16  # rows, columns and depth of the smallest product that a GPU's tensor cores take
_DEPTH = 32


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
