"""Two rows of gradients, each read once: their dot products, and the step along their mixture.

Triton comes with torch for GPUs. Nothing here is imported without it.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_BLOCK = 1024  # numbers of a row that are loaded at once
_BLOCKS = 4  # blocks that one program goes through


def gram(rows: Tensor) -> Tensor:
    """Return the dot products [R, 2, 2] of rows [R, 2, d].

    Every program sums its part of a run's rows, in float32 as they are, and one more sum adds the
    parts: always in the same order, so that the bits are the same each time.
    """
    runs, _, length = rows.shape
    programs = triton.cdiv(length, _BLOCK * _BLOCKS)
    parts = rows.new_empty(runs, programs, 4)
    with torch.cuda.device_of(rows):  # kernels go to the device in use
        _gram[(programs, runs)](
            rows, rows.stride(0), rows.stride(1), length, parts, BLOCK=_BLOCK, BLOCKS=_BLOCKS
        )
    return parts.sum(1).view(runs, 2, 2)


def descend(parameters: Tensor, rows: Tensor, weights: Tensor, learning_rate: float) -> None:
    """Take the step w <- w - rate * (weights @ rows), of parameters [R, d], in place."""
    runs, _, length = rows.shape
    with torch.cuda.device_of(rows):
        _descend[(triton.cdiv(length, _BLOCK), runs)](
            parameters,
            parameters.stride(0),
            rows,
            rows.stride(0),
            rows.stride(1),
            weights.contiguous(),
            float(learning_rate),
            length,
            BLOCK=_BLOCK,
        )


@triton.jit
def _load(row, start, length, BLOCK: tl.constexpr):
    """Load a block of a row, with zeros beyond its end."""
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= length:  # a block without a mask is loaded four numbers at a time
        block = tl.load(row + offsets)
    else:
        block = tl.load(row + offsets, mask=offsets < length, other=0.0)
    return block


@triton.jit
def _gram(
    rows,
    run_stride,
    row_stride,
    length,
    parts,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    run = tl.program_id(1).to(tl.int64)  # offsets of many runs exceed 32 bits
    current = rows + run * run_stride
    reference = current + row_stride
    current_square = tl.zeros([BLOCK], tl.float32)
    product = tl.zeros([BLOCK], tl.float32)
    reference_square = tl.zeros([BLOCK], tl.float32)
    for block in range(BLOCKS):
        start = (tl.program_id(0) * BLOCKS + block) * BLOCK
        g = _load(current, start, length, BLOCK)
        r = _load(reference, start, length, BLOCK)
        current_square += g * g
        product += g * r
        reference_square += r * r
    part = parts + (run * tl.num_programs(0) + tl.program_id(0)) * 4
    between = tl.sum(product)
    tl.store(part, tl.sum(current_square))
    tl.store(part + 1, between)
    tl.store(part + 2, between)
    tl.store(part + 3, tl.sum(reference_square))


@triton.jit
def _descend(
    parameters,
    parameter_stride,
    rows,
    run_stride,
    row_stride,
    weights,
    learning_rate,
    length,
    BLOCK: tl.constexpr,
):
    run, start = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK
    current = rows + run * run_stride
    weight = parameters + run * parameter_stride
    g = _load(current, start, length, BLOCK)
    r = _load(current + row_stride, start, length, BLOCK)
    w = _load(weight, start, length, BLOCK)
    mixture = tl.load(weights + 2 * run) * g + tl.load(weights + 2 * run + 1) * r
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= length:
        tl.store(weight + offsets, w - learning_rate * mixture)
    else:
        tl.store(weight + offsets, w - learning_rate * mixture, mask=offsets < length)
