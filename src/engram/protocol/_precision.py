"""How a GPU multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Let convolutions round what they multiply to 10 bits, or (``float32``) keep all of it.

    Matrix products keep all of it in any case: the dot products and mixtures of gradients are
    among them. The fastest algorithm for each shape is found by trying.
    """
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    torch.backends.cudnn.allow_tf32 = name != "float32"
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = before
