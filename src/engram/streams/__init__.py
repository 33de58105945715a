"""Streams of tasks, and the data under them."""

from engram.streams._benchmark import Benchmark
from engram.streams._mnist import Mnist, load_mnist, mnist_checksums
from engram.streams._names import benchmark, names
from engram.streams._permuted import PermutedMnist
from engram.streams._stream import Batch, Examples, Stream, TestBatch

__all__ = [
    "Batch",
    "Benchmark",
    "Examples",
    "Mnist",
    "PermutedMnist",
    "Stream",
    "TestBatch",
    "benchmark",
    "load_mnist",
    "mnist_checksums",
    "names",
]
