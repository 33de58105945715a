"""Streams of tasks, and the data under them."""

from engram.lab.benchmarks.own_data import OwnBenchmark, OwnSettings
from engram.lab.benchmarks.permuted_mnist import (
    PRESETS,
    Mnist,
    PermutedMnist,
    Preset,
    load_mnist,
    mnist_checksums,
)
from engram.lab.benchmarks.registry import benchmark, names, register
from engram.lab.benchmarks.split import (
    ImageSettings,
    Part,
    SplitStream,
    complete,
    only,
    shuffled_parts,
)
from engram.lab.benchmarks.stream import (
    OTHER,
    Batch,
    Benchmark,
    Examples,
    Stream,
    TestBatch,
    check_each_seed,
    check_tasks,
)
from engram.lab.benchmarks.tensors import from_tensors

__all__ = [
    "OTHER",
    "PRESETS",
    "Batch",
    "Benchmark",
    "Examples",
    "ImageSettings",
    "Mnist",
    "OwnBenchmark",
    "OwnSettings",
    "Part",
    "PermutedMnist",
    "Preset",
    "SplitStream",
    "Stream",
    "TestBatch",
    "benchmark",
    "check_each_seed",
    "check_tasks",
    "complete",
    "from_tensors",
    "load_mnist",
    "mnist_checksums",
    "names",
    "only",
    "register",
    "shuffled_parts",
]
