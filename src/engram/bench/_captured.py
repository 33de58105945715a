"""A step of each method on a GPU, captured where the method allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engram.bench._events import Timing, microseconds
from engram.bench._methods import USUAL, task_by_task
from engram.bench._permuted import EARLIER, EXAMPLES, permuted

_BOUNDS = {"gem": 8.0}  # times MEGA-II


def captured(
    device: str, chosen: Sequence[str] | None = None, *, runs: int = 5, examples: int = EXAMPLES
) -> list[dict[str, Any]]:
    """Measure each method that can be captured in the last of 17 tasks, for R runs at once."""
    times: dict[str, Timing] = {}
    for name in dict.fromkeys([USUAL, *(chosen or task_by_task())]):
        with permuted(name, examples=examples, runs=runs, device=device) as lesson:
            if lesson.method.capturable:
                steps = lesson.last_task(EARLIER)
                times[name] = microseconds(steps.take, len(steps))
    rows = [
        {
            "method": name,
            "runs": runs,
            "microseconds": taken.median,
            "lowest": taken.lowest,
            "highest": taken.highest,
            "ratio": taken.median / times[USUAL].median,
            "bound": _BOUNDS.get(name),
        }
        for name, taken in times.items()
    ]
    return sorted(rows, key=lambda row: float(row["microseconds"]))
