"""Streams of tasks, and the data under them."""

from engram.streams._benchmark import Benchmark
from engram.streams._mnist import Mnist, load_mnist, mnist_checksums
from engram.streams._names import benchmark, names
from engram.streams._other_data import OTHER
from engram.streams._own_benchmark import OwnBenchmark
from engram.streams._permuted import PermutedMnist
from engram.streams._presets import PRESETS, Preset
from engram.streams._stream import (
    Batch,
    Examples,
    Stream,
    TestBatch,
    check_each_seed,
    check_tasks,
)
from engram.streams._tensors import from_tensors

__all__ = [
    "OTHER",
    "PRESETS",
    "Batch",
    "Benchmark",
    "Examples",
    "Mnist",
    "OwnBenchmark",
    "PermutedMnist",
    "Preset",
    "Stream",
    "TestBatch",
    "benchmark",
    "check_each_seed",
    "check_tasks",
    "from_tensors",
    "load_mnist",
    "mnist_checksums",
    "names",
]
