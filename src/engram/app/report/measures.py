"""What is measured of a run, and its statistic over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engram import metrics
from engram.app.runs import Row

_BYTES_OF_A_NUMBER = 4  # parameters are float32
# How many vectors of the parameters' length a method keeps, for runs that did not record it.
_VECTORS = {"ewc": 4, "lwf": 1, "mas": 3, "pi": 4, "recommended": 1, "rwalk": 8}


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

NEWEST = Metric("newest_accuracy", "newest task %", 2)
"""Of one's own data, where what is new may count more than an average over all there was."""

GUESS = "guess_percent"  # the fact that results of one's own data have


def metrics_for(rows: Iterable[Row]) -> tuple[Metric, ...]:
    """Return what is printed of results: of one's own data the newest task's accuracy as well."""
    facts = [row.outcome["facts"] for row in rows]
    found = (METRICS[0], NEWEST, *METRICS[1:])
    for kind, measured in (("labels", "F1"), ("numbers", "R²")):
        if any(each.get("target") == kind for each in facts):
            average = Metric("average_accuracy", f"average {measured} %", 2)
            return average, Metric(NEWEST.name, f"newest {measured} %", 2), *found[2:]
    return found if any(GUESS in each for each in facts) else METRICS


@dataclass(frozen=True)
class Statistic:
    """Mean and population standard deviation over the seeds that have a value.

    >>> Statistic.over([1.0, None, 3.0])
    Statistic(mean=2.0, std=1.0, values=(1.0, None, 3.0))
    """

    mean: float
    std: float | None  # None: one value says nothing of the spread
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
    elif metric == NEWEST.name:
        value = 100 * matrix[-1][-1]
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


def quantity(row: Row, name: str) -> float | None:
    """Return a metric, a cost or a fact of a run, or None where it has none.

    ``change_over_tasks`` is A_T - A_1 in points; ``memory_bytes_in_all`` is what must be kept for
    the next step: parameters, the method's own state and the stored examples; ``finished`` is 1 of
    a run that came to its end: one that diverged says nothing of whether it fits, and one that
    runs out of memory leaves no result. Any other name is a fact that the run has recorded.
    """
    if name == "seconds":
        return row.seconds
    if name == "finished":
        return 1.0 if row.outcome["failure"] is None else None
    if name in {metric.name for metric in (*METRICS, NEWEST)}:
        return measure(row, name)
    if name == "change_over_tasks":
        return _change(row)
    if name == "memory_bytes_in_all":
        facts = row.outcome["facts"]
        parameters = _number(facts.get("parameters"))
        if parameters is None:
            return None
        vectors = _VECTORS.get(row.identity["method"], 0)
        return held_bytes({"state_bytes": vectors * _BYTES_OF_A_NUMBER * parameters, **facts})
    return _number(row.outcome["facts"].get(name))


def _change(row: Row) -> float | None:
    if row.outcome["failure"]:
        return None
    curve = metrics.average_accuracy_over_tasks(accuracy_matrix(row))
    change = 100 * float(curve[-1] - curve[0])
    return change if math.isfinite(change) else None


def held_bytes(facts: Mapping[str, Any]) -> float:
    """Return the bytes of a run's parameters, of its method's own state and of its examples."""
    parameters, *rest = (
        _number(facts.get(name)) or 0.0 for name in ("parameters", "state_bytes", "memory_bytes")
    )
    return _BYTES_OF_A_NUMBER * parameters + sum(rest)


def _number(fact: object) -> float | None:
    usable = isinstance(fact, int | float) and not isinstance(fact, bool) and math.isfinite(fact)
    return float(fact) if usable else None  # type: ignore[arg-type]
