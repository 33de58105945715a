"""Streams of tasks, and the data under them."""

from __future__ import annotations

from engram.errors import unknown
from engram.streams._mnist import Mnist, load_mnist, mnist_checksums
from engram.streams._permuted import PermutedMnist
from engram.streams._stream import Examples, Stream, TestBatch

__all__ = [
    "Examples",
    "Mnist",
    "PermutedMnist",
    "Stream",
    "TestBatch",
    "load_mnist",
    "mnist_checksums",
    "names",
    "stream_class",
]

_STREAMS: dict[str, type[PermutedMnist]] = {PermutedMnist.name: PermutedMnist}


def names() -> list[str]:
    """Return the names of the benchmarks."""
    return sorted(_STREAMS)


def stream_class(name: str) -> type[PermutedMnist]:
    """Return the stream of that name, or an error that lists the valid ones."""
    if name not in _STREAMS:
        raise unknown("benchmark", name, _STREAMS)
    return _STREAMS[name]
