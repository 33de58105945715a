"""Everything that is worth measuring on a device."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from engram.bench._captured import captured
from engram.bench._determinism import determinism
from engram.bench._images import images
from engram.bench._methods import methods
from engram.bench._stacks import stacks
from engram.bench._steps import steps

Rows = list[dict[str, Any]]
_CPU: dict[str, Callable[[], Rows]] = {"steps": steps, "methods": methods}
_GPU: dict[str, Callable[[str], Rows]] = {
    "stacks": stacks,
    "captured": captured,
    "images": images,
    "determinism": determinism,
}


def measure(device: str) -> Iterator[tuple[str, Rows]]:
    """Yield table after table, each with its name, as they are measured.

    A CPU is measured on one thread, which stays the number of threads from then on.
    """
    if torch.device(device).type == "cuda":
        for name, gpu_table in _GPU.items():
            yield name, gpu_table(device)
        return
    torch.set_num_threads(1)
    for name, cpu_table in _CPU.items():
        yield name, cpu_table()


def device_name(device: str) -> str:
    """Return what was measured, in words."""
    if torch.device(device).type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    return f"one thread of {_processor()}"


def _processor() -> str:
    """Return the model of the CPU where Linux tells it, else its architecture."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
