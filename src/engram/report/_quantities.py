"""What claims and costs are about: a number of one run, by its name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from engram import metrics
from engram.report._measures import METRICS, accuracy_matrix, measure
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.runs import Row

_BYTES_OF_A_NUMBER = 4  # parameters are float32
_VECTORS = {"ewc": 4, "mas": 3, "pi": 4, "rwalk": 8}
"""How many vectors of the parameters' length a method keeps, for runs that did not record it."""


def quantity(row: Row, name: str) -> float | None:
    """Return a metric, a cost or a fact of a run, or None where it has none.

    ``change_over_tasks`` is A_T - A_1 in points; ``memory_bytes_in_all`` is what must be kept for
    the next step: parameters, the method's own state and the stored examples; ``finished`` is 1 of
    a run that came to its end: one that diverged tells nothing of whether it fits, and one that
    runs out of memory leaves no result. Any other name is a fact that the run has recorded.
    """
    if name == "seconds":
        return row.seconds
    if name == "finished":
        return 1.0 if row.outcome["failure"] is None else None
    if name in {metric.name for metric in METRICS}:
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


def mean_quantity(summary: Summary, name: str) -> float | None:
    """Return the mean over the seeds that have a value, or None if none has."""
    known = [value for row in summary.rows if (value := quantity(row, name)) is not None]
    return statistics.fmean(known) if known else None


def representatives(summaries: Sequence[Summary], standard: Standard) -> dict[str, Summary]:
    """Return the line that speaks for each method in one setting.

    It is the one with the fewest settings that are not the paper's; of these the one with most
    seeds.
    """
    chosen: dict[str, tuple[tuple[int, int, bool], int, Summary]] = {}
    for summary in summaries:
        rank = (standard.strangeness(summary), -len(summary.rows))
        if summary.method not in chosen or rank < chosen[summary.method][:2]:
            chosen[summary.method] = (*rank, summary)
    return {method: entry[2] for method, entry in chosen.items()}


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
