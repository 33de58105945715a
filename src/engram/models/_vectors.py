"""Flat vectors of many runs, side by side in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_LINE = 32  # numbers in the 128 bytes that a GPU reads at once


def room(like: Tensor, *shape: int) -> Tensor:
    """Return room for vectors [..., d], each of which begins at a multiple of 128 bytes.

    Whatever d is: products of a vector's matrices, and whatever else reads numbers by fours, would
    otherwise be slow for all runs but the first. What lies between two vectors is nobody's.
    """
    *others, length = shape
    return like.new_empty(*others, -(-length // _LINE) * _LINE)[..., :length]


def stacked(drawn: Sequence[Tensor], device: torch.device | str) -> Tensor:
    """Return the vectors [d] of R runs as one tensor [R, d] on a device."""
    first = torch.empty(0, dtype=drawn[0].dtype, device=device)
    together = room(first, len(drawn), len(drawn[0]))
    return together.copy_(torch.stack(list(drawn)))
