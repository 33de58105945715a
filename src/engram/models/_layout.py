"""Named tensors in one flat vector."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


class Layout:
    """Where tensors of these names and shapes lie in a flat vector: one behind the other.

    A kernel [outputs, inputs, height, width] lies there with its inputs last, as GPUs want it.

    >>> layout = Layout({"weight": (2, 3), "bias": (2,)})
    >>> layout.size
    8
    >>> layout.views(torch.arange(8.0))["bias"]
    tensor([6., 7.])
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self._lengths = [math.prod(shape) for shape in self.shapes.values()]
        self.size = sum(self._lengths)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return every tensor as a view of the vector [size]."""
        parts = zip(self.shapes.items(), torch.split(flat, self._lengths), strict=True)
        return {name: _view(part, shape) for (name, shape), part in parts}


def _view(part: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) != 4 or shape[2:] == (1, 1):
        return part.view(shape)
    outputs, inputs, height, width = shape
    return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
