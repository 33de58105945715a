"""Work that a GPU does side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


class Branches:
    """Pieces of work that do not need one another, each on a stream of its own.

    What goes on between ``branch`` and ``join`` may run at the same time; after ``join`` all of it
    is done, as far as the device is concerned. It can be captured in a CUDA graph, and it may be
    nested. On a CPU the pieces come one after the other.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._used: list[torch.cuda.Stream] = []

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Do a piece of work beside the others."""
        if self._device.type != "cuda":
            yield
            return
        here = torch.cuda.current_stream(self._device)
        aside = _stream(self._device, here.cuda_stream, len(self._used) % _MOST)
        aside.wait_stream(here)
        self._used.append(aside)
        with torch.cuda.stream(aside):
            yield

    def join(self) -> None:
        """Go on when all of it is done."""
        for aside in self._used[:_MOST]:
            torch.cuda.current_stream(self._device).wait_stream(aside)


_MOST = 8  # at the same time; more are dealt out in turn


@cache
def _stream(device: torch.device, parent: int, number: int) -> torch.cuda.Stream:  # noqa: ARG001
    """Return the stream for a branch of the stream that is known as ``parent``."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
