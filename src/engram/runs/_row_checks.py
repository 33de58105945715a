"""What a row must be before it enters a store, whoever made it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engram.errors import EngramError
from engram.runs._address import address
from engram.runs._field_checks import (
    MOST,
    check_created,
    check_identity,
    check_known,
    check_plain,
    check_versions,
    short,
    typed,
    within,
)

_ROW = {
    "address": str,
    "seed": int,
    "identity": dict,
    "outcome": dict,
    "device": str,
    "seconds": float,
    "created": str,
    "versions": dict,
    "command": str,
}
_OUTCOME = {"accuracy": list, "curve": list, "facts": dict, "failure": (str, type(None))}

_LONGEST = 1e10  # seconds, three hundred years
_FURTHEST = 1e100  # from zero: sums of squares over any number of runs are finite
_COUNTS = {
    "parameters",
    "state_bytes",
    "memory_bytes",
    "reads_after_task",
    "stacked",
    "recorded_steps",
}
_PERCENTAGES = {
    "guess_percent",
    "k2_below_1_percent",
    "mixing_percent",
    "theta_1_at_most_theta_2_percent",
}
_ROUNDED = 1e-6  # that a percentage may be off
_HISTOGRAM = "log_k2_histogram"
_READ_AS_BINS = re.compile(r"[\s+\-_\d]+:[\s+\-_\d]*")  # as Python reads whole numbers
_BINS = re.compile(r"-?[0-9]{1,4}:( [0-9]{1,18}){0,9999}")  # log k2 of any two float64 is in there


def check_row(fields: object) -> dict[str, Any]:
    """Return the fields of a row if they are whole and sound; EngramError says what is wrong."""
    row = typed("row", fields, _ROW)
    check_known("row", row, _ROW)
    check_plain(row)
    identity = check_identity(row["identity"])
    if not 0 <= row["seed"] < 2**63:
        raise EngramError(f"seed must be from 0 to 2^63 - 1, not {row['seed']}.")
    if row["address"] != address(identity, row["seed"]):
        raise EngramError(f"address {row['address'][:10]!r} is not that of its identity and seed.")
    if not within(row["seconds"], _LONGEST):
        told = short(row["seconds"])
        raise EngramError(f"seconds must be at least 0 and at most {_LONGEST:g}, not {told}.")
    check_created(row["created"])
    check_versions(row["versions"])
    _check_outcome(typed("outcome", row["outcome"], _OUTCOME), identity["tasks"])
    return {**row, "seconds": abs(float(row["seconds"]))}  # SQLite has no -0.0


def fact_fault(name: str, fact: object) -> str | None:
    """Return what a fact must be and is not, or None.

    What the lab tells of every run is a count or a percentage; any other number is one that
    averages can be made of. What is no number enters none, and is left alone.
    """
    if isinstance(fact, str):
        strange = name == _HISTOGRAM and _READ_AS_BINS.fullmatch(fact) and not _BINS.fullmatch(fact)
        return "a bin from -9999 to 9999 and counts below 10^18" if strange else None
    if isinstance(fact, bool) or not isinstance(fact, int | float):
        return None
    if name in _COUNTS:
        whole = isinstance(fact, int) or fact.is_integer()
        return None if whole and within(fact, MOST) else "a whole number from 0 to 2^63 - 1"
    if name in _PERCENTAGES:
        return None if within(fact, 100 + _ROUNDED) else "from 0 to 100"
    return None if -_FURTHEST <= fact <= _FURTHEST else f"from -{_FURTHEST:g} to {_FURTHEST:g}"


def _check_outcome(outcome: Mapping[str, Any], tasks: int) -> None:
    check_known("outcome", outcome, _OUTCOME)
    for name, fact in outcome["facts"].items():
        if (wanted := fact_fault(name, fact)) is not None:
            raise EngramError(f"outcome.facts.{name} must be {wanted}, not {short(fact)}.")
    for name in ("accuracy", "curve"):
        for row in outcome[name]:
            if not isinstance(row, list):
                raise EngramError(f"outcome.{name} must be a list of lists.")
            for entry in row:
                if not within(entry, 1) and not (name == "accuracy" and entry is None):
                    raise EngramError(f"outcome.{name} holds {short(entry)}, not a fraction.")
    matrix = outcome["accuracy"]
    if len(matrix) != tasks or any(len(row) != tasks for row in matrix):
        raise EngramError(f"outcome.accuracy must have {tasks} rows of {tasks} entries.")
    for task, row in enumerate(matrix):
        if 0 < row[: task + 1].count(None) <= task:  # joint training is measured at the end alone
            raise EngramError(f"outcome.accuracy must have all tasks learned in row {task + 1}.")
    if len(outcome["curve"]) not in (0, tasks) and outcome["failure"] is None:
        raise EngramError(f"outcome.curve must have {tasks} rows, not {len(outcome['curve'])}.")
