"""The times of the published results: what tells how long runs take where a store cannot."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from importlib import resources
from typing import NamedTuple

from engram.runs import Row

_FILE = "times.json"


class Taken(NamedTuple):
    """About how many seconds runs of one kind took on a device."""

    device: str
    benchmark: str
    method: str
    tasks: int
    examples: int
    seconds: float


def taken(rows: Iterable[Row]) -> list[Taken]:
    """Return the median seconds of the training runs of each kind that came to their end."""
    alike: dict[tuple[str, str, str, int, int], list[float]] = {}
    for row in rows:
        made = row.identity
        if made.get("split", "training") == "training" and not row.outcome["failure"]:
            names = made["benchmark"], made["method"]
            kind = (row.device, *names, made["tasks"], made["examples"])
            alike.setdefault(kind, []).append(row.seconds)
    return [
        Taken(*kind, float(f"{statistics.median(seconds):.3g}"))
        for kind, seconds in sorted(alike.items())
    ]


def published() -> list[Taken]:
    """Return the times that come with the package."""
    text = resources.files("engram.studies").joinpath(_FILE).read_text("utf-8")
    return [Taken(*each) for each in json.loads(text)]
