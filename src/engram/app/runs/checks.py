"""What is refused: before any training time is spent, and before an entry comes into a store."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from engram.errors import EngramError, shown

_BYTES_PER_ENTRY = 12  # of an accuracy matrix, as JSON: half of them are null
_BYTES_PER_RUN = 4096
_SLACK = 16 * 2**20

TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"

MOST = 2**63 - 1  # of anything that is counted, and of any whole number: SQLite has no larger one

_SPLITS = ("training", "tuning")
_IDENTITY = {"benchmark": str, "method": str, "tasks": int, "examples": int, "settings": dict}
_NETWORK = {"name": str, "source": str, "arguments": dict}
_LATER = {
    "split": str,
    "passes": int,
    "numerics": list,
    "data": str,
    "plugins": dict,
    "network": dict,
}  # older results lack some


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


def typed(name: str, value: object, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object if it has these fields, of these types; float takes whole numbers."""
    if not isinstance(value, dict):
        raise EngramError(f"{name} must be a JSON object, not {shown(value)}.")
    for key, kind in types.items():
        if key not in value:
            raise EngramError(f"{name} lacks the field {key!r}.")
        allowed = (int, float) if kind is float else kind
        if not isinstance(value[key], allowed) or isinstance(value[key], bool):
            raise EngramError(f"{name}.{key} has the wrong type: {shown(value[key])}.")
    return value


def check_known(name: str, fields: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a field that nobody knows."""
    if unknown := sorted(map(repr, fields.keys() - known.keys())):
        article = "An" if name == "outcome" else "A"
        raise EngramError(f"{article} {name} has no field {unknown[0]}.")


def check_identity(identity: object) -> dict[str, Any]:
    """Return what was run if it says so in plain names and possible numbers."""
    checked = typed("identity", identity, _IDENTITY)
    typed("identity", checked, {name: kind for name, kind in _LATER.items() if name in checked})
    for name in ("benchmark", "method"):
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", checked[name]):
            raise EngramError(f"identity.{name} must be a plain name, not {checked[name]!r}.")
    for name in ("tasks", "examples", "passes"):
        if not 1 <= checked.get(name, 1) < 2**31:
            given = shown(checked[name])
            raise EngramError(f"identity.{name} must be at least 1 and below 2^31, not {given}.")
    for entry in checked.get("numerics", ()):
        if not (isinstance(entry, int) and within(entry, MOST)):
            raise EngramError(f"identity.numerics holds {shown(entry)}, not a version's number.")
    if (split := checked.get("split", "training")) not in _SPLITS:  # files are called after it
        raise EngramError(f"identity.split must be one of {_SPLITS}, not {shown(split)}.")
    for name, source in checked.get("plugins", {}).items():
        if not (re.fullmatch(r"[a-z]+/[a-z0-9]+(-[a-z0-9]+)*", name) and isinstance(source, str)):
            raise EngramError(f"identity.plugins holds {shown(name)}, not a plugin.")
    check_settings("identity", checked["settings"])
    if "network" in checked:
        typed("identity.network", checked["network"], _NETWORK)
        check_settings("identity.network.arguments", checked["network"]["arguments"])
    return checked


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a value that no setting has."""
    for value in settings.values():
        if not isinstance(value, str | int | float) or (
            isinstance(value, int) and abs(value) > MOST
        ):
            raise EngramError(f"{name}.settings holds {shown(value)}, not a setting.")


def check_versions(versions: Mapping[str, Any]) -> None:
    """Refuse versions that are no texts."""
    for name, version in versions.items():
        if not isinstance(version, str):
            raise EngramError(f"versions.{name} must be a text, not {shown(version)}.")


def check_created(text: str) -> None:
    """Refuse a time that is written in another way than ours."""
    try:
        datetime.strptime(text, TIME_FORMAT)
    except ValueError:
        raise EngramError(f"created must look like {TIME_FORMAT}, not {text!r}.") from None


def check_plain(value: object) -> None:
    """Refuse control characters and line breaks, as texts end up on terminals, and infinities.

    JSON has none of these, but 1e999 is read as one.
    """
    if isinstance(value, str) and not value.isprintable():
        raise EngramError(f"A row may hold printable text only, not {shown(value)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise EngramError(f"A row may hold finite numbers only, not {value}.")
    if isinstance(value, dict):
        for key, entry in value.items():
            check_plain(key)
            check_plain(entry)
    elif isinstance(value, list):
        for entry in value:
            if type(entry) is not float or not math.isfinite(entry):  # rows have hundreds of them
                check_plain(entry)


def within(entry: object, most: float) -> bool:
    """Whether something read from JSON is a number from 0 to ``most``."""
    return isinstance(entry, int | float) and not isinstance(entry, bool) and 0 <= entry <= most
