"""A row is one finished run: what was run, what came of it, and its receipts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engram.app.runs.checks import (
    MOST,
    TIME_FORMAT,
    check_created,
    check_identity,
    check_known,
    check_plain,
    check_versions,
    typed,
    within,
)
from engram.app.runs.provenance import made_with
from engram.errors import EngramError, shown

if TYPE_CHECKING:
    from engram.lab.protocol import Outcome, Spec

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

_MOST_SECONDS = 1e10  # seconds, three hundred years
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
    "contradiction_percent",
    "guess_percent",
    "k2_below_1_percent",
    "mixing_percent",
    "theta_1_at_most_theta_2_percent",
}
_ROUNDED = 1e-6  # that a percentage may be off
_HISTOGRAM = "log_k2_histogram"
_READ_AS_BINS = re.compile(r"[\s+\-_\d]+:[\s+\-_\d]*")  # as Python reads whole numbers
_BINS = re.compile(r"-?[0-9]{1,4}:( [0-9]{1,18}){0,9999}")  # log k2 of any two float64 is in there


def canonical(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def address(identity: Mapping[str, Any], seed: int) -> str:
    """Return the content address of a run: sha256 of its identity and seed, in hexadecimal.

    The identity is the spec, the data's checksum and the method's numerics version: not the
    commit, the device or anything else that leaves the numbers what they are.

    >>> address({"method": "van", "tasks": 2}, 0) == address({"tasks": 2, "method": "van"}, 0)
    True
    >>> address({"method": "van", "tasks": 2}, 0) == address({"method": "van", "tasks": 2}, 1)
    False
    """
    text = canonical({"identity": dict(identity), "seed": seed})
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """One finished run, as the store and a line of JSON hold it.

    ``outcome`` has the keys ``accuracy`` ([T][T] fractions, None = not seen yet), ``curve``
    ([T][at most 11]), ``facts`` and ``failure`` (a sentence if the run diverged, else None).
    """

    address: str
    seed: int
    identity: Mapping[str, Any]
    outcome: Mapping[str, Any]
    device: str
    seconds: float
    created: str  # UTC
    versions: Mapping[str, str]
    command: str

    @classmethod
    def of(cls, fields: object) -> Row:
        """Return the row of these fields; an EngramError says what is wrong with them."""
        return cls(**_check_row(fields))

    @property
    def line(self) -> str:
        """The row as one canonical line of JSON."""
        return canonical(vars(self))

    @property
    def digest(self) -> str:
        """sha256 of the line: two rows are one if everything in them is equal."""
        return hashlib.sha256(self.line.encode()).hexdigest()


def record(
    spec: Spec, outcome: Outcome, command: str, versions: Mapping[str, str] | None = None
) -> Row:
    """Return the row of an outcome that was computed just now, here or with other ``versions``."""
    identity = json.loads(canonical(spec.identity()))
    return Row.of(
        {
            "address": address(identity, outcome.seed),
            "seed": outcome.seed,
            "identity": identity,
            "outcome": {
                "accuracy": outcome.accuracy,
                "curve": outcome.curve,
                "facts": {key: _usable(key, value) for key, value in outcome.facts.items()},
                "failure": None if outcome.failure is None else printable(outcome.failure),
            },
            "device": outcome.device,
            "seconds": outcome.seconds,
            **stamp(command, gpu=outcome.device != "cpu"),
            **({} if versions is None else {"versions": dict(versions)}),
        }
    )


def _usable(name: str, fact: float | str) -> float | str:
    # JSON has no NaN, reports have no room for 1e308, a text has one line: no fact is a reason to
    # lose a finished run.
    if isinstance(fact, str):
        fact = printable(fact)
    return fact if _fact_fault(name, fact) is None else repr(fact)


def stamp(command: str, *, gpu: bool = False) -> dict[str, Any]:
    """Return the fields of an entry that is made just now."""
    return {
        "created": datetime.now(UTC).strftime(TIME_FORMAT),
        "versions": made_with(gpu=gpu),
        "command": printable(command),
    }


def printable(text: str) -> str:
    r"""Return the text on one line, without control characters.

    >>> printable("one\ntwo\x1b[31m")
    'one two�[31m'
    """
    spaced = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "�" for letter in spaced)


def _check_row(fields: object) -> dict[str, Any]:
    """Return the fields of a row if they are whole and sound; EngramError says what is wrong."""
    row = typed("row", fields, _ROW)
    check_known("row", row, _ROW)
    check_plain(row)
    identity = check_identity(row["identity"])
    if not 0 <= row["seed"] < 2**63:
        raise EngramError(f"seed must be from 0 to 2^63 - 1, not {row['seed']}.")
    if row["address"] != address(identity, row["seed"]):
        raise EngramError(f"address {row['address'][:10]!r} is not that of its identity and seed.")
    if not within(row["seconds"], _MOST_SECONDS):
        given = shown(row["seconds"])
        raise EngramError(f"seconds must be at least 0 and at most {_MOST_SECONDS:g}, not {given}.")
    check_created(row["created"])
    check_versions(row["versions"])
    _check_outcome(typed("outcome", row["outcome"], _OUTCOME), identity["tasks"])
    return {**row, "seconds": abs(float(row["seconds"]))}  # SQLite has no -0.0


def _fact_fault(name: str, fact: object) -> str | None:
    """Return what a fact must be and is not, or None.

    What the lab records of every run is a count or a percentage; any other number is one that
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
        if (wanted := _fact_fault(name, fact)) is not None:
            raise EngramError(f"outcome.facts.{name} must be {wanted}, not {shown(fact)}.")
    for name in ("accuracy", "curve"):
        for row in outcome[name]:
            if not isinstance(row, list):
                raise EngramError(f"outcome.{name} must be a list of lists.")
            for entry in row:
                if type(entry) is float and 0 <= entry <= 1:  # nearly all are
                    continue
                if not within(entry, 1) and not (name == "accuracy" and entry is None):
                    raise EngramError(f"outcome.{name} holds {shown(entry)}, not a fraction.")
    matrix = outcome["accuracy"]
    if len(matrix) != tasks or any(len(row) != tasks for row in matrix):
        raise EngramError(f"outcome.accuracy must have {tasks} rows of {tasks} entries.")
    for task, row in enumerate(matrix):
        if 0 < row[: task + 1].count(None) <= task:  # joint training is measured at the end alone
            raise EngramError(f"outcome.accuracy must have all tasks learned in row {task + 1}.")
    if len(outcome["curve"]) not in (0, tasks) and outcome["failure"] is None:
        raise EngramError(f"outcome.curve must have {tasks} rows, not {len(outcome['curve'])}.")
