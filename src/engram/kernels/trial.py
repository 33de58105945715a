"""The smallest kernel that needs what the others do.

Triton comes with torch for GPUs. Nothing here is imported without it.
"""

# Kernels are typed by what they are called with, and constants of theirs have upper case names.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

SIDE = 16  # rows and columns of the smallest product that a GPU's tensor cores take


def multiply(matrices: Tensor) -> None:
    """Write the product of two matrices, [2, SIDE, SIDE], into the first.

    It is one of numbers cut in two halves, and goes by way of bfloat16: not every GPU has both.
    """
    narrow = matrices.new_empty(SIDE, SIDE, dtype=torch.bfloat16)
    with torch.cuda.device_of(matrices):  # kernels go to the device in use
        _multiply[(1,)](matrices, narrow, SIDE=SIDE)


@triton.jit
def _multiply(matrices, narrow, SIDE: tl.constexpr):
    place = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    x, y = tl.load(matrices + place), tl.load(matrices + SIDE * SIDE + place)
    product = tl.dot(x, y, input_precision="tf32x3")
    tl.store(narrow + place, product)
    tl.store(matrices + place, tl.load(narrow + place).to(tl.float32))
