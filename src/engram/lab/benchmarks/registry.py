"""The registry of benchmarks: each by its name."""

from __future__ import annotations

import re
from typing import Any

from engram.errors import EngramError, shown, unknown
from engram.lab.benchmarks import folder, table
from engram.lab.benchmarks.own_data import DIGITS, OwnImageSettings, filed
from engram.lab.benchmarks.permuted_mnist import PERMUTED_MNIST, PRESETS
from engram.lab.benchmarks.split_awa import SPLIT_AWA
from engram.lab.benchmarks.split_cifar import CLASS_INCREMENTAL_CIFAR, SPLIT_CIFAR
from engram.lab.benchmarks.split_cub import SPLIT_CUB
from engram.lab.benchmarks.stream import Benchmark
from engram.plugins import Registry

_PLACES = {"folder": folder.folder_benchmark, "table": table.table_benchmark}
_FILED = {
    "folder": (folder.FolderSettings, folder.LIKE),
    "table": (table.TableSettings, table.LIKE),
    "tensors": (OwnImageSettings, PERMUTED_MNIST.name),
}
_FILED_NAME = re.compile(rf"({'|'.join(_FILED)})-([a-z0-9]+-)*[0-9a-f]{{{DIGITS}}}")
_PAPERS = (PERMUTED_MNIST, SPLIT_CIFAR, SPLIT_CUB, SPLIT_AWA)


def _check(name: str, value: object) -> Benchmark:
    if not isinstance(value, Benchmark):
        raise EngramError(f"The benchmark {shown(name)} must be a Benchmark, not {shown(value)}.")
    if name in PRESETS:
        raise EngramError(f"name must not be {name!r}, which is a benchmark of the paper's.")
    return value


BENCHMARKS: Registry[Benchmark] = Registry("benchmarks", "benchmark", _check)
for _each in (*_PAPERS, CLASS_INCREMENTAL_CIFAR):
    BENCHMARKS.add(_each.name, _each, module=_each.build.__module__)


def names() -> list[str]:
    """Return the names of the benchmarks, of the presets of theirs, and of one's own data."""
    return [*BENCHMARKS.names(), *PRESETS, *(f"{kind}:PATH" for kind in _PLACES)]


def benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name, or an error that lists the valid ones.

    ``folder:PATH`` and ``table:PATH`` are one's own data; so is the name that results of it are
    filed under, by which the data itself is not found.
    """
    if not isinstance(name, str):
        raise unknown("benchmark", name, names())
    kind, colon, path = name.partition(":")
    if colon and kind in _PLACES:
        return _PLACES[kind](path)
    if found := _FILED_NAME.fullmatch(name):
        return filed(name, *_FILED[found[1]])
    known = BENCHMARKS.find(name)
    if known is None:
        raise unknown("benchmark", name, names())
    return known


def register(name: str, made: Benchmark) -> None:
    """Make a benchmark known by a name, which must be none of the paper's."""
    if name in {each.name for each in _PAPERS}:
        raise EngramError(f"name must not be {name!r}, which is a benchmark of the paper's.")
    build: Any = made.build
    BENCHMARKS.add(name, made, module=getattr(build, "func", build).__module__)  # of a partial
