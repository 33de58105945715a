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
    nested. Pieces that go on while others begin and end have a ``purpose`` of their own, lest they
    share a stream. On a CPU the pieces come one after the other.
    """

    def __init__(self, device: torch.device, purpose: str = "") -> None:
        self._device, self._purpose = device, purpose
        self._used: list[torch.cuda.Stream] = []

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Do a piece of work beside the others."""
        if self._device.type != "cuda":
            yield
            return
        here = torch.cuda.current_stream(self._device)
        number = len(self._used) % _MOST
        aside = _stream(self._device, here.cuda_stream, self._purpose, number)
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
def _stream(
    device: torch.device,
    parent: int,  # noqa: ARG001
    purpose: str,  # noqa: ARG001
    number: int,  # noqa: ARG001
) -> torch.cuda.Stream:
    """Return the stream for a branch of the stream that is known as ``parent``."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
