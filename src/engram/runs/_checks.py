"""What is refused before any training time is spent."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from engram.errors import EngramError, shown

_BYTES_PER_ENTRY = 12  # of an accuracy matrix, as JSON: half of them are null
_BYTES_PER_RUN = 4096
_SLACK = 16 * 2**20


def check_seeds(count: int) -> None:
    """Refuse fewer than one seed, and a number that no seed can have."""
    if count < 1:
        raise EngramError(f"seeds must be at least 1, not {count}.")
    if count >= 2**63:
        raise EngramError(f"seeds must be below 2^63, not {shown(count)}.")


def check_interval(seconds: float) -> None:
    """Refuse a time between two checkpoints that is none; 0 stands for no checkpoints."""
    if not 0 <= seconds < math.inf:
        raise EngramError(f"checkpoint-every must be 0 or more seconds, not {seconds}.")


def free_bytes(path: Path) -> int:
    """Return the free space of the disk that a file of this path is on, or will be."""
    folder = path.absolute().parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_disk(path: Path, tasks: int, runs: int, free: Callable[[Path], int] = free_bytes) -> None:
    """Refuse if the results of so many runs will not fit beside ``path``."""
    curve = 11 * tasks
    needed = runs * (_BYTES_PER_ENTRY * (tasks**2 + curve) + _BYTES_PER_RUN) + _SLACK
    available = free(path)
    if needed > available:
        raise EngramError(
            f"The results of {runs:,} runs of {tasks:,} tasks take about {_size(needed)}, but the "
            f"disk of {str(path)!r} has {_size(available)} left."
        )


def resolve_device(name: str) -> str:
    """Return the device that ``name`` means: ``auto`` is cuda where there is one, else cpu.

    >>> resolve_device("cpu")
    'cpu'
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise EngramError(f"device must be auto, cpu, cuda or cuda:N, not {name!r}.") from None
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise EngramError(f"device must be auto, cpu, cuda or cuda:N, not {name!r}.")
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise EngramError(f"device {name!r} is not there: this machine has {count} CUDA devices.")
    return str(device)


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.0f} TiB"
