"""Named tensors in one flat vector."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


class Layout:
    """Where tensors of these names and shapes lie in a flat vector: one behind the other.

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
        return {name: part.view(shape) for (name, shape), part in parts}
