"""How long runs will take, by those that were made before: a store's, and the published ones."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from engram.app.runs import Row

if TYPE_CHECKING:
    from engram.lab.protocol import Spec

_FILE = "times.json"
_FAR = 4.0


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
        usual = made.get("split", "training") == "training" and "network" not in made
        if usual and not row.outcome["failure"]:
            names = made["benchmark"], made["method"]
            kind = (row.device, *names, made["tasks"], made["examples"])
            alike.setdefault(kind, []).append(row.seconds)
    return [
        Taken(*kind, float(f"{statistics.median(seconds):.3g}"))
        for kind, seconds in sorted(alike.items())
    ]


def published() -> list[Taken]:
    """Return the times that come with the package."""
    text = resources.files("engram.app.studies").joinpath(_FILE).read_text("utf-8")
    return [Taken(*each) for each in json.loads(text)]


class Timings:
    """Seconds that were taken on one device, by its name."""

    def __init__(self, made: Iterable[Taken], device: str) -> None:
        self._seconds: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
        for each in made:
            if each.device == device:
                alike = self._seconds.setdefault((each.benchmark, each.method), {})
                alike[each.tasks, each.examples] = each.seconds

    def seconds(self, spec: Spec) -> float | None:
        """Return about how many seconds a run will take, or None where nothing like it was made.

        That is what runs with as many tasks and examples took or, where there are none, those of
        the method on the benchmark that are nearest to it in examples, in proportion to these.
        Where there were four times as many, or a fourth, evaluation spoils the proportion: None.
        Tuning tasks are fewer, and take rather less than in proportion.
        """
        if spec.network is not None:  # it may take any time
            return None
        identity = spec.identity()
        alike = self._seconds.get((identity["benchmark"], identity["method"]), {})
        if (spec.tasks, spec.examples) in alike:
            return alike[spec.tasks, spec.examples]
        shares = {
            spec.tasks * spec.examples / (tasks * examples): seconds
            for (tasks, examples), seconds in alike.items()
        }
        nearest = min(shares, key=lambda share: abs(math.log(share)), default=math.inf)
        least = 0.0 if spec.split == "tuning" else 1 / _FAR
        return nearest * shares[nearest] if least < nearest < _FAR else None
