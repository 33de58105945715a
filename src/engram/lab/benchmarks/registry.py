"""The registry of benchmarks: each by its name."""

from __future__ import annotations

import re

from engram.errors import EngramError, unknown
from engram.lab.benchmarks import folder, table
from engram.lab.benchmarks.own_data import DIGITS, OwnSettings, filed
from engram.lab.benchmarks.permuted_mnist import PERMUTED_MNIST, PRESETS
from engram.lab.benchmarks.split_awa import SPLIT_AWA
from engram.lab.benchmarks.split_cifar import SPLIT_CIFAR
from engram.lab.benchmarks.split_cub import SPLIT_CUB
from engram.lab.benchmarks.stream import Benchmark

_BENCHMARKS = {item.name: item for item in (PERMUTED_MNIST, SPLIT_CIFAR, SPLIT_CUB, SPLIT_AWA)}
_PLACES = {"folder": folder.folder_benchmark, "table": table.table_benchmark}
_FILED = {
    "folder": (folder.FolderSettings, folder.LIKE),
    "table": (table.TableSettings, table.LIKE),
    "tensors": (OwnSettings, PERMUTED_MNIST.name),
}
_FILED_NAME = re.compile(rf"({'|'.join(_FILED)})-([a-z0-9]+-)*[0-9a-f]{{{DIGITS}}}")
_REGISTERED: dict[str, Benchmark] = {}


def names() -> list[str]:
    """Return the names of the benchmarks, of the presets of theirs, and of one's own data."""
    return [*_BENCHMARKS, *PRESETS, *(f"{kind}:PATH" for kind in _PLACES), *_REGISTERED]


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
    known = {**_BENCHMARKS, **_REGISTERED}
    if name not in known:
        raise unknown("benchmark", name, names())
    return known[name]


def register(name: str, made: Benchmark) -> None:
    """Make a benchmark known to this process by a name, which must be none of the paper's."""
    if name in _BENCHMARKS or name in PRESETS:
        raise EngramError(f"name must not be {name!r}, which is a benchmark of the paper's.")
    _REGISTERED[name] = made
