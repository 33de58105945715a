"""The benchmarks by name."""

from __future__ import annotations

from engram.errors import unknown
from engram.streams._awa import SPLIT_AWA
from engram.streams._benchmark import Benchmark
from engram.streams._cifar import SPLIT_CIFAR
from engram.streams._cub import SPLIT_CUB
from engram.streams._permuted import PERMUTED_MNIST

_BENCHMARKS = {item.name: item for item in (PERMUTED_MNIST, SPLIT_CIFAR, SPLIT_CUB, SPLIT_AWA)}


def names() -> list[str]:
    """Return the names of the benchmarks."""
    return list(_BENCHMARKS)


def benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name, or an error that lists the valid ones."""
    if name not in _BENCHMARKS:
        raise unknown("benchmark", name, _BENCHMARKS)
    return _BENCHMARKS[name]
