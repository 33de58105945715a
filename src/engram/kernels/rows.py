"""Rows of gradients, each read once: their dot products, and the step along their mixture.

There are kernels for two rows, which most steps have, and for many.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_LEAST = 16  # rows of the smallest product that a GPU's tensor cores take
_DEPTH = 32  # numbers of each row that are multiplied at once
_FEW = 32  # rows whose dot products two warps sum the fastest
_BLOCK = 1024  # numbers of a row that are mixed at once
_BLOCKS = 4  # blocks that one program goes through, of two rows


def gram(rows: Tensor) -> Tensor:
    """Return the dot products [R, n, n] of rows [R, n, d], n from 2 to 128: a tile holds them.

    Every program sums its part of a run's rows, and one more sum adds the parts: always in the
    same order, so that the bits are the same each time. Two rows are multiplied in float32 as they
    are; of many, three products of numbers cut in two halves are as exact as one of float32.
    """
    runs, count, length = rows.shape
    with torch.cuda.device_of(rows):  # kernels go to the device in use
        if count == 2:
            programs = triton.cdiv(length, _BLOCK * _BLOCKS)
            parts = rows.new_empty(runs, programs, 4)
            _gram_two[(programs, runs)](
                rows, rows.stride(0), rows.stride(1), length, parts, BLOCK=_BLOCK, BLOCKS=_BLOCKS
            )
            return parts.sum(1).view(runs, 2, 2)
        size = max(_LEAST, triton.next_power_of_2(count))
        depths, warps = (32, 2) if size <= _FEW else (64, size // 16)  # of a program; measured
        programs = triton.cdiv(length, _DEPTH * depths)
        parts = rows.new_empty(runs, programs, size, size)
        _gram_many[(programs, runs)](
            *(rows, rows.stride(0), rows.stride(1), count, length, parts),
            SIZE=size,
            DEPTH=_DEPTH,
            DEPTHS=depths,
            num_warps=warps,
        )
    return parts.sum(1)[:, :count, :count]


def gram_apart(current: Tensor, reference: Tensor) -> Tensor:
    """Return the dot products [2, 2] of two vectors, wherever each is, as those of two rows."""
    length = current.numel()
    with torch.cuda.device_of(current):
        programs = triton.cdiv(length, _BLOCK * _BLOCKS)
        parts = current.new_empty(programs, 4)
        _gram_apart[(programs,)](current, reference, length, parts, BLOCK=_BLOCK, BLOCKS=_BLOCKS)
    return parts.sum(0).view(2, 2)


def descend(parameters: Tensor, rows: Tensor, weights: Tensor, learning_rate: float) -> None:
    """Take the step w <- w - rate * (weights @ rows), of parameters [R, d], in place."""
    runs, count, length = rows.shape
    strides = parameters.stride(0), rows.stride(0), rows.stride(1)
    given = (parameters, strides[0], rows, *strides[1:], weights.contiguous(), float(learning_rate))
    with torch.cuda.device_of(rows):
        if count == 2:
            _descend_two[(triton.cdiv(length, _BLOCK), runs)](*given, length, BLOCK=_BLOCK)
        else:
            _descend_many[(triton.cdiv(length, _BLOCK), runs)](*given, count, length, BLOCK=_BLOCK)


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
def _gram_apart(
    current,
    reference,
    length,
    parts,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    current_square = tl.zeros([BLOCK], tl.float32)
    product = tl.zeros([BLOCK], tl.float32)
    reference_square = tl.zeros([BLOCK], tl.float32)
    for block in range(BLOCKS):
        start = (tl.program_id(0).to(tl.int64) * BLOCKS + block) * BLOCK
        g = _load(current, start, length, BLOCK)
        r = _load(reference, start, length, BLOCK)
        current_square += g * g
        product += g * r
        reference_square += r * r
    part = parts + tl.program_id(0) * 4
    between = tl.sum(product)
    tl.store(part, tl.sum(current_square))
    tl.store(part + 1, between)
    tl.store(part + 2, between)
    tl.store(part + 3, tl.sum(reference_square))


@triton.jit
def _gram_two(
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
def _descend_two(
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


@triton.jit
def _gram_many(
    rows,
    run_stride,
    row_stride,
    count,
    length,
    parts,
    SIZE: tl.constexpr,
    DEPTH: tl.constexpr,
    DEPTHS: tl.constexpr,
):
    run = tl.program_id(1).to(tl.int64)  # offsets of many runs exceed 32 bits
    row = tl.arange(0, SIZE)
    place = tl.program_id(0) * DEPTHS * DEPTH + tl.arange(0, DEPTH)
    numbers = rows + run * run_stride + row[:, None].to(tl.int64) * row_stride + place[None, :]
    products = tl.zeros([SIZE, SIZE], tl.float32)
    for step in range(DEPTHS):
        inside = (row[:, None] < count) & (place[None, :] < length - step * DEPTH)
        part = tl.load(numbers + step * DEPTH, mask=inside, other=0.0)
        products = tl.dot(part, tl.trans(part), products, input_precision="tf32x3")
    parts += (run * tl.num_programs(0) + tl.program_id(0)) * SIZE * SIZE
    tl.store(parts + row[:, None] * SIZE + row[None, :], products)


@triton.jit
def _descend_many(
    parameters,
    parameter_stride,
    rows,
    run_stride,
    row_stride,
    weights,
    learning_rate,
    count,
    length,
    BLOCK: tl.constexpr,
):
    run = tl.program_id(1).to(tl.int64)
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < length
    numbers = rows + run * run_stride + places
    mixture = tl.zeros([BLOCK], tl.float32)
    for row in range(count):
        mixture += tl.load(weights + run * count + row) * tl.load(numbers, mask=inside, other=0.0)
        numbers += row_stride
    weight = parameters + run * parameter_stride + places
    tl.store(weight, tl.load(weight, mask=inside) - learning_rate * mixture, mask=inside)
