"""How networks use a GPU: work side by side, and the precision of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch

_AS_THEY_ARE = nullcontext()  # one for all: it is asked for several times a step


class Branches:
    """Pieces of work that do not need one another, each on a stream of its own.

    What goes on between ``branch`` and ``join`` may run at the same time; after ``join`` all of it
    is done, as far as the device is concerned. Until then whoever opened the branches holds what
    they read: memory that is given back before is used again while they still read it. Branches may
    be nested.

    Streams are taken while a CUDA graph is captured, and while there are any: torch has 32, and
    gives the same ones again when asked for more. A stream with two parents would use memory again
    that was freed by one of them while the other one's work still reads it. In every other case the
    pieces come one after the other: launched one by one, there is little to gain.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._count, self._used = 0, dict[torch.cuda.Stream, None]()

    def branch(self) -> AbstractContextManager[object]:
        """Do a piece of work beside the others."""
        if self._device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
            return _IN_TURN
        here = torch.cuda.current_stream(self._device)
        aside = _stream(here, self._count % _MOST)
        self._count += 1
        if aside is None:
            return _IN_TURN
        aside.wait_stream(here)
        self._used[aside] = None
        return torch.cuda.stream(aside)

    def join(self) -> None:
        """Go on when all of it is done."""
        for aside in self._used:
            torch.cuda.current_stream(self._device).wait_stream(aside)


_IN_TURN = nullcontext()  # one for all: it is asked for several times a step
_MOST = 8  # at the same time; more are dealt out in turn
_POOL = 32  # streams of a GPU that torch has, and gives in turn

_taken = set[torch.cuda.Stream]()  # those that have a place, or are parents themselves


@cache
def _stream(
    parent: torch.cuda.Stream,
    number: int,  # noqa: ARG001
) -> torch.cuda.Stream | None:
    """Return the stream for a branch of the parent, or None if all have a place."""
    _taken.add(parent)
    for _ in range(_POOL):  # others ask for streams too: if one is taken, the next may not be
        stream = torch.cuda.Stream(parent.device)  # type: ignore[no-untyped-call]
        if stream not in _taken:
            _taken.add(stream)
            return stream
    return None


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
