"""Measuring: what steps cost on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import torch

from engram.errors import unknown
from engram.lab.bench.cpu import (
    BATCH,
    Batches,
    examples,
    filled_memory,
    learner,
    method_step,
    methods,
    products_alone,
    steps,
)
from engram.lab.bench.gpu import captured, determinism, images, replays, searches, stacks
from engram.lab.bench.networks import on_cpu, on_gpu
from engram.lab.bench.own_loop import TORCHJD, compiled, loop, penalties
from engram.lab.bench.timing import clock_of, median, ratio, take_turns, timed
from engram.lab.protocol import processor

__all__ = [
    "BATCH",
    "Batches",
    "captured",
    "compiled",
    "determinism",
    "device_name",
    "examples",
    "filled_memory",
    "images",
    "learner",
    "loop",
    "measure",
    "median",
    "method_step",
    "methods",
    "others",
    "penalties",
    "products_alone",
    "ratio",
    "replays",
    "searches",
    "stacks",
    "steps",
    "take_turns",
    "timed",
]

Rows = list[dict[str, Any]]
Table = Rows | Iterator[Rows]
"""A table, or one in parts that are there as soon as they are measured."""

_CPU: dict[str, Callable[[], Table]] = {
    "steps": steps,
    "methods": methods,
    "networks": on_cpu,
    "loop": partial(loop, "cpu"),
    "penalties": partial(penalties, "cpu"),
}
_GPU: dict[str, Callable[[str], Table]] = {
    "stacks": stacks,
    "searches": searches,
    "captured": captured,
    "replays": replays,
    "images": images,
    "determinism": determinism,
    "networks": on_gpu,
    "loop": loop,
    "penalties": penalties,
    "compiled": compiled,
}


def measure(device: str, chosen: Sequence[str] = ()) -> Iterator[tuple[str, Rows]]:
    """Yield table after table, each with its name, as they are measured: all, or those chosen.

    Some come in parts, one after another under the same name. A CPU is measured on one thread,
    which stays the number of threads from then on.
    """
    tables = _tables(device)
    for name in chosen:
        if name not in tables:
            raise unknown("table for this device", name, tables)
    if torch.device(device).type != "cuda":
        torch.set_num_threads(1)
    for name in dict.fromkeys(chosen or tables):
        with clock_of(device):
            table = tables[name]()
            for part in [table] if isinstance(table, list) else table:
                yield name, part


def others(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the versions of others' packages that these rows were measured with."""
    beside = any(row.get("interface") == "TorchJD" for row in rows)
    return {TORCHJD: version(TORCHJD)} if beside else {}


def _tables(device: str) -> dict[str, Callable[[], Table]]:
    if torch.device(device).type == "cuda":
        return {name: partial(table, device) for name, table in _GPU.items()}
    return _CPU


def device_name(device: str) -> str:
    """Return what was measured, in words."""
    if torch.device(device).type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    return f"one thread of {processor()}"
