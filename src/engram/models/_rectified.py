"""A linear layer and its ReLU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import torch
from torch import Tensor

SOURCE = """
template <typename T> T rectify(T product, T bias) {
  const T sum = product + bias;
  return sum <= T(0) ? T(0) : sum;
}
"""  # NaN stays NaN


def rectified(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return relu(x W + b) for inputs [R, B, n], weights [R, n, m] and biases [R, 1, m]."""
    if not inputs.is_cuda:
        return torch.baddbmm(bias, inputs, weight).relu_()
    # There a product that starts from the bias copies it first: a kernel more, and a slower one.
    return _rectify()(torch.bmm(inputs, weight), bias)


@cache
def _rectify() -> Callable[[Tensor, Tensor], Tensor]:
    """Return relu(x + b) as one kernel; the first call compiles it, outside of any capture."""
    return cast(Callable[[Tensor, Tensor], Tensor], torch.cuda.jiterator._create_jit_fn(SOURCE))
