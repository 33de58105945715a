"""What is measured of a run, and its statistic over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engram import metrics
from engram.runs import Row


class Metric(NamedTuple):
    """A metric as it is printed: its name in JSON, its title and its digits."""

    name: str
    title: str
    digits: int


METRICS = (
    Metric("average_accuracy", "average accuracy %", 2),
    Metric("forgetting", "forgetting", 3),
    Metric("lca_10", "LCA", 3),
)


@dataclass(frozen=True)
class Statistic:
    """Mean and population standard deviation over the seeds that have a value.

    >>> Statistic.over([1.0, None, 3.0])
    Statistic(mean=2.0, std=1.0, values=(1.0, None, 3.0))
    """

    mean: float
    std: float | None  # None: one value tells nothing of the spread
    values: tuple[float | None, ...]

    @classmethod
    def over(cls, values: Sequence[float | None]) -> Statistic | None:
        """Return the statistic of the values, or None if there are none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        std = statistics.pstdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), std, tuple(values))


def accuracy_matrix(row: Row) -> list[list[float]]:  # [T][T], NaN = not seen yet
    """Return the accuracy on every task after every task, as fractions."""
    return [
        [math.nan if entry is None else entry for entry in line] for line in row.outcome["accuracy"]
    ]


def measure(row: Row, metric: str) -> float | None:
    """Return one run's metric, accuracy in percent and the others as fractions, or None."""
    if row.outcome["failure"]:
        return None
    matrix = accuracy_matrix(row)
    if metric == "average_accuracy":
        value = 100 * float(metrics.average_accuracy(matrix))
    elif metric == "forgetting":
        value = float(metrics.forgetting(matrix))
    else:
        value = _learning_curve_area(row.outcome["curve"])
    return value if math.isfinite(value) else None


def _learning_curve_area(curve: Sequence[Sequence[float]]) -> float:
    shortest = min(map(len, curve), default=0)
    if shortest == 0:  # joint training has no current task
        return math.nan
    return float(metrics.learning_curve_area([line[:shortest] for line in curve], "trapezoid"))
