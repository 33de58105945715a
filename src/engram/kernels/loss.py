"""Cross-entropies and their gradients, from logits in one go.

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

_NUMBERS = 4096  # logits that are held at once
_PER_WARP = 256


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
