"""The smallest kernel.

Triton comes with torch for GPUs. Nothing here is imported without it.
"""

# Kernels are typed by what they are called with.
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor


def double(number: Tensor) -> None:
    """Double a number, [1], in place."""
    with torch.cuda.device_of(number):  # kernels go to the device in use
        _double[(1,)](number)


@triton.jit
def _double(number):
    tl.store(number, 2 * tl.load(number))
