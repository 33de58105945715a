"""The distributions that initial weights are drawn from."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

SPREAD = 0.1  # standard deviation of the weights, and the value of every bias


def draw_normal(source: np.random.Generator, weight: Tensor) -> None:
    """Fill a weight from a normal distribution of deviation 0.1, cut at two deviations."""
    drawn = source.standard_normal(weight.numel())
    outside = np.flatnonzero(np.abs(drawn) > 2)
    while len(outside):
        again = source.standard_normal(len(outside))
        drawn[outside] = again
        outside = outside[np.abs(again) > 2]
    weight.copy_(torch.from_numpy(SPREAD * drawn).view_as(weight))


def draw_uniform(source: np.random.Generator, weight: Tensor, reads: int) -> None:
    """Fill a weight uniformly from ±1/√reads."""
    bound = reads**-0.5
    weight.copy_(torch.from_numpy(source.uniform(-bound, bound, weight.shape)))
