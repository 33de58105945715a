"""The benchmarks by name."""

from __future__ import annotations

from engram.errors import EngramError, unknown
from engram.streams import _folder, _table
from engram.streams._awa import SPLIT_AWA
from engram.streams._benchmark import Benchmark
from engram.streams._cifar import SPLIT_CIFAR
from engram.streams._cub import SPLIT_CUB
from engram.streams._own_benchmark import OwnBenchmark, filed, is_filed
from engram.streams._own_tasks import OwnSettings
from engram.streams._permuted import PERMUTED_MNIST
from engram.streams._presets import PRESETS

_BENCHMARKS = {item.name: item for item in (PERMUTED_MNIST, SPLIT_CIFAR, SPLIT_CUB, SPLIT_AWA)}
_PLACES = {"folder": _folder.folder_benchmark, "table": _table.table_benchmark}
_FILED = {
    "folder": (_folder.FolderSettings, _folder.LIKE),
    "table": (_table.TableSettings, _table.LIKE),
    "tensors": (OwnSettings, PERMUTED_MNIST.name),
}
_REGISTERED: dict[str, OwnBenchmark] = {}


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
    for kind, (settings, like) in _FILED.items():
        if is_filed(name, kind):
            return filed(name, settings, like)
    known = {**_BENCHMARKS, **_REGISTERED}
    if name not in known:
        raise unknown("benchmark", name, names())
    return known[name]


def register(name: str, own: OwnBenchmark) -> None:
    """Make a benchmark known to this process by a name, which no other may have."""
    if name in _BENCHMARKS or name in PRESETS:
        raise EngramError(f"name must not be {name!r}, which is a benchmark of the paper's.")
    _REGISTERED[name] = own
