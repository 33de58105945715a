"""How a GPU multiplies matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def rounding(*, tf32: bool) -> Iterator[None]:
    """Let products of matrices round what they multiply to 10 bits, or leave them as they are."""
    if not tf32:
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
