"""Operations without a look at their indices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def unchecked() -> Iterator[None]:
    """Let torch not look whether indices occur twice, in order to go through them one by one.

    Where the same bits are asked for each time it does, and waits for the device. This is for what
    scatters to no place twice.
    """
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode(0)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
