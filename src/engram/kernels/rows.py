"""The kernels of rows of gradients, those of `engram.lab.engine` and of `engram.gradients`.

Cross-entropies and their gradients come from logits in one go. Rows are read once for their dot
products, and once for the step along their mixture; there are kernels for two rows, which most
steps have, and for many. Two rows that autograd has left in a tensor for each parameter are read
where they are, by their addresses, whatever the number of parameters.

Triton comes with torch for GPUs. Nothing here is imported without it.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

_NUMBERS = 4096  # logits that are held at once
_PER_WARP = 256
_LEAST = 16  # rows of the smallest product that a GPU's tensor cores take
_DEPTH = 32  # numbers of each row that are multiplied at once
_FEW = 32  # rows whose dot products two warps sum the fastest
_BLOCK = 1024  # numbers of a row that are mixed at once
_BLOCKS = 4  # blocks that one program goes through, of two rows
_MOST_PROGRAMS = 2048  # that read the parameters of a model, a piece after another
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
PIECE = _BLOCK * _BLOCKS
"""Numbers of a parameter that are read in one go."""


def entropies(
    logits: Tensor, labels: Tensor, weights: Tensor | None, groups: int
) -> tuple[Tensor, Tensor]:
    """Return each part's loss [R, groups] and the gradient at the logits [R, B, classes].

    There are 4,096 classes at the most: a program holds all logits of one or more examples.

    A program goes through a part from its first example to its last: the bits are the same each
    time. Without ``weights`` [R, B] all examples of a part have the same share of its mean.
    """
    runs, size, classes = logits.shape
    losses, gradient = logits.new_empty(runs, groups), logits.new_empty(logits.shape)
    part, width = size // groups, triton.next_power_of_2(classes)
    examples = min(_NUMBERS // width, triton.next_power_of_2(part))
    with torch.cuda.device_of(logits):
        _entropies[(groups, runs)](
            logits.contiguous(),
            labels.contiguous(),
            labels if weights is None else weights.contiguous(),
            losses,
            gradient,
            part,
            classes,
            1 / part,
            WEIGHTED=weights is not None,
            CLASSES=width,
            EXAMPLES=examples,
            num_warps=min(max(examples * width // _PER_WARP, 1), 16),
        )
    return losses, gradient


@triton.jit
def _entropies(
    logits,
    labels,
    weights,
    losses,
    gradient,
    part,
    classes,
    share,
    WEIGHTED: tl.constexpr,
    CLASSES: tl.constexpr,
    EXAMPLES: tl.constexpr,
):
    number = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    column = tl.arange(0, CLASSES)
    total = tl.zeros([EXAMPLES], tl.float32)
    for start in range(0, part, EXAMPLES):
        row = start + tl.arange(0, EXAMPLES)
        there = row < part
        example = number * part + row
        place = example[:, None] * classes + column[None, :]
        inside = there[:, None] & (column[None, :] < classes)
        values = tl.load(logits + place, mask=inside, other=float("-inf"))
        values -= tl.max(values, 1)[:, None]
        powers = tl.exp(values)
        sums = tl.sum(powers, 1)
        is_label = column[None, :] == tl.load(labels + example, mask=there, other=0)[:, None]
        if WEIGHTED:
            shares = tl.load(weights + example, mask=there, other=0.0)
        else:
            shares = tl.zeros([EXAMPLES], tl.float32) + share
        entropy = tl.log(sums) - tl.sum(tl.where(is_label, values, 0.0), 1)
        total += tl.where(there, entropy * shares, 0.0)
        slopes = powers / sums[:, None] - tl.where(is_label, 1.0, 0.0)
        tl.store(gradient + place, slopes * shares[:, None], mask=inside)
    tl.store(losses + number, tl.sum(total))


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


class Scattered(NamedTuple):
    """One row or two, in a tensor for each parameter, by the addresses of what they hold."""

    addresses: Tensor
    """[rows, parameters], int64; 0 where a row has none of a parameter that the other one has."""
    pieces: Tensor
    """[3, pieces], int64: each one's parameter, its first number, and the parameter's numbers."""
    dtype: torch.dtype
    aligned: bool
    """Whether every address is a multiple of 16."""

    @property
    def _programs(self) -> int:
        return min(self.pieces.shape[1], _MOST_PROGRAMS)

    @property
    def _arguments(self) -> tuple[Tensor, int, Tensor, int, int]:
        """What kernels read, and how many pieces a program goes through."""
        count = self.pieces.shape[1]
        steps = triton.cdiv(count, self._programs)
        return self.addresses, self.addresses.shape[1], self.pieces, count, steps

    @property
    def _constants(self) -> dict[str, Any]:
        return {
            "ROWS": len(self.addresses),
            "DTYPE": _TYPES[self.dtype],
            "ALIGNED": self.aligned,
            "BLOCK": _BLOCK,
            "BLOCKS": _BLOCKS,
        }


def compare_scattered(
    rows: Scattered, losses: Sequence[Tensor], *, products: bool
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the losses [n], the dot products [n, n] if they are wanted, and a mark of 0.

    ``losses`` are numbers of float32 on the device, as many as there are rows. What is returned is
    float32; dot products are summed in float64 in the end, always in the same order.
    """
    count, device = len(losses), losses[0].device
    numbers = torch.empty(count + count * count, dtype=torch.float32, device=device)
    mark = torch.empty((), dtype=torch.uint8, device=device)
    programs, parts = 0, numbers
    with torch.cuda.device_of(mark):  # kernels go to the device in use
        if products:
            programs = rows._programs
            parts = torch.empty(3, programs, dtype=torch.float32, device=device)
            _dots_of_scattered[(programs,)](
                *rows._arguments,
                parts,
                **rows._constants,
            )
        _gather_numbers[(1,)](
            *(losses[0], losses[-1], parts, programs, numbers, mark),
            ROWS=count,
            BLOCK=_BLOCK,
        )
    gram = numbers[count:].view(count, count) if products else None
    return numbers[:count], gram, mark


def mix_scattered(
    rows: Scattered,
    losses: Tensor,
    weights: Tensor,
    marks: tuple[Tensor, Tensor] | None,
    *,
    compares_losses: bool,
    look: bool,
) -> None:
    """Form ``weights @ rows`` in the first row's tensors, or the second's where it has none.

    ``marks`` are one of this step, of uint8, and one of float32: both become 1 where a weight is
    not finite, where a loss that the rule compares is below 0, or with ``look`` where an element
    of the mixture is not finite; else they are left as they are.
    """
    mark, flag = marks or (weights, weights)
    with torch.cuda.device_of(losses):
        _mix_scattered[(rows._programs,)](
            *rows._arguments,
            *(losses, weights, mark, flag),
            CHECKED=marks is not None,
            COMPARED=compares_losses,
            LOOK=look,
            **rows._constants,
        )


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
def _load_at(
    address, start, length, DTYPE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    """Load a block of the numbers at an address in float32, zeros if that is 0."""
    row = address.to(tl.pointer_type(DTYPE))
    if ALIGNED:
        row = tl.multiple_of(row, 16)
    return _load(row, start, tl.where(address == 0, 0, length), BLOCK).to(tl.float32)


@triton.jit
def _piece(pieces, count, step, BLOCK: tl.constexpr):
    """Return this program's next piece; behind the last one come some without a number."""
    place = tl.program_id(0) + step * tl.num_programs(0)
    known = tl.minimum(place, count - 1)
    first = tl.multiple_of(tl.load(pieces + count + known), BLOCK)
    length = tl.where(place < count, tl.load(pieces + 2 * count + known), 0)
    return tl.load(pieces + known), first, length


@triton.jit
def _dots_of_scattered(
    addresses,
    parameters,
    pieces,
    count,
    steps,
    parts,
    ROWS: tl.constexpr,
    DTYPE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    current_square = tl.zeros([BLOCK], tl.float32)
    product = tl.zeros([BLOCK], tl.float32)
    reference_square = tl.zeros([BLOCK], tl.float32)
    for step in range(steps):
        parameter, first, length = _piece(pieces, count, step, BLOCK)
        current = tl.load(addresses + parameter)
        reference = tl.load(addresses + (ROWS - 1) * parameters + parameter)
        for block in range(BLOCKS):
            start = first + block * BLOCK
            g = _load_at(current, start, length, DTYPE, ALIGNED, BLOCK)
            r = _load_at(reference, start, length, DTYPE, ALIGNED, BLOCK)
            current_square += g * g
            product += g * r
            reference_square += r * r
    part = parts + tl.program_id(0)
    tl.store(part, tl.sum(current_square))
    tl.store(part + tl.num_programs(0), tl.sum(product))
    tl.store(part + 2 * tl.num_programs(0), tl.sum(reference_square))


@triton.jit
def _gather_numbers(
    current, reference, parts, programs, numbers, mark, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    tl.store(mark, 0)
    tl.store(numbers, tl.load(current))
    if ROWS == 2:
        tl.store(numbers + 1, tl.load(reference))
    if programs > 0:
        current_square = tl.zeros([BLOCK], tl.float64)
        product = tl.zeros([BLOCK], tl.float64)
        reference_square = tl.zeros([BLOCK], tl.float64)
        for start in range(0, programs, BLOCK):
            place = start + tl.arange(0, BLOCK)
            inside = place < programs
            current_square += tl.load(parts + place, mask=inside, other=0.0)
            product += tl.load(parts + programs + place, mask=inside, other=0.0)
            reference_square += tl.load(parts + 2 * programs + place, mask=inside, other=0.0)
        gram = numbers + ROWS
        tl.store(gram, tl.sum(current_square))
        if ROWS == 2:
            between = tl.sum(product)
            tl.store(gram + 1, between)
            tl.store(gram + 2, between)
            tl.store(gram + 3, tl.sum(reference_square))


@triton.jit
def _mix_scattered(
    addresses,
    parameters,
    pieces,
    count,
    steps,
    losses,
    weights,
    mark,
    flag,
    CHECKED: tl.constexpr,
    COMPARED: tl.constexpr,
    LOOK: tl.constexpr,
    ROWS: tl.constexpr,
    DTYPE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    first_weight = tl.load(weights)
    second_weight = tl.load(weights + ROWS - 1)
    trouble = tl.zeros([BLOCK], tl.float32)
    for step in range(steps):
        parameter, first, length = _piece(pieces, count, step, BLOCK)
        current = tl.load(addresses + parameter)
        reference = tl.load(addresses + (ROWS - 1) * parameters + parameter)
        total = tl.where(current == 0, reference, current).to(tl.pointer_type(DTYPE))
        if ALIGNED:
            total = tl.multiple_of(total, 16)
        for block in range(BLOCKS):
            start = first + block * BLOCK
            mixture = first_weight * _load_at(current, start, length, DTYPE, ALIGNED, BLOCK)
            if ROWS == 2:
                remembered = _load_at(reference, start, length, DTYPE, ALIGNED, BLOCK)
                mixture += second_weight * remembered
            rounded = mixture.to(DTYPE)
            if LOOK:
                wide = rounded.to(tl.float32)
                trouble += wide - wide  # 0, but NaN where it is not finite
            offsets = start + tl.arange(0, BLOCK)
            if start + BLOCK <= length:
                tl.store(total + offsets, rounded)
            else:
                tl.store(total + offsets, rounded, mask=offsets < length)
    if CHECKED:
        marks = tl.sum(trouble) + (first_weight - first_weight) + (second_weight - second_weight)
        bad = marks != 0
        if COMPARED:
            for row in range(ROWS):
                bad = bad | (tl.load(losses + row) < 0)
        if bad:  # whoever finds it writes the same
            tl.store(mark, 1)
            tl.store(flag, 1.0)


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
