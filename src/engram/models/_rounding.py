"""How a GPU multiplies matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

_AS_THEY_ARE = nullcontext()  # one for all: it is asked for several times a step


def rounding(*, tf32: bool) -> AbstractContextManager[None]:
    """Let products of matrices round what they multiply to 10 bits, or leave them as they are."""
    return _rounded() if tf32 else _AS_THEY_ARE


@contextmanager
def _rounded() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
