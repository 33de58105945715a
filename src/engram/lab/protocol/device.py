"""What a run is computed on, in words."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

import torch

_TOLD = Path("/proc/cpuinfo")


def device_name(device: str) -> str:
    """Return the model of a GPU, or "cpu"."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return device


def processor() -> str:
    """Return the model of the CPU where Linux tells it, else its architecture."""
    lines = list[str]()
    with suppress(OSError):  # elsewhere there is no such file
        lines = _TOLD.read_text("utf-8", "replace").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def cpu_facts(device: str) -> dict[str, str]:
    """Return which CPU rounds the numbers of a run, and with which instructions; of a GPU nothing.

    Two CPUs add up in another order, and a run's steps make that show in its last digits.
    """
    if torch.device(device).type != "cpu":
        return {}
    return {"cpu": f"{processor()} ({torch.backends.cpu.get_cpu_capability()})"}
