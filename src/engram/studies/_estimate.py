"""How long runs will take, by those that were made before."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

from engram.runs import Row

if TYPE_CHECKING:
    from engram.protocol import Spec


class Timings:
    """The seconds of stored results that were made on one device, by its name."""

    def __init__(self, rows: Iterable[Row], device: str) -> None:
        self._seconds: dict[tuple[str, str], dict[tuple[int, int], list[float]]] = {}
        for row in rows:
            if row.device == device and not row.outcome["failure"]:
                made = row.identity
                alike = self._seconds.setdefault((made["benchmark"], made["method"]), {})
                alike.setdefault((made["tasks"], made["examples"]), []).append(row.seconds)

    def seconds(self, spec: Spec) -> float | None:
        """Return about how many seconds a run will take, or None where nothing like it was made.

        That is the mean over runs with as many tasks and examples or, where there are none, over
        all runs of the method on the benchmark, in proportion to the examples in all.
        """
        identity = spec.identity()
        alike = self._seconds.get((identity["benchmark"], identity["method"]), {})
        if (spec.tasks, spec.examples) in alike:
            return statistics.fmean(alike[spec.tasks, spec.examples])
        rates = [
            seconds / (tasks * examples)
            for (tasks, examples), made in alike.items()
            for seconds in made
        ]
        return spec.tasks * spec.examples * statistics.fmean(rates) if rates else None
