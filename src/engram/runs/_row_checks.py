"""What a row must be before it enters a store, whoever made it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from engram.errors import EngramError
from engram.runs._address import address
from engram.runs._field_checks import (
    check_created,
    check_identity,
    check_known,
    check_plain,
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
    if not within(row["seconds"], sys.float_info.max):
        raise EngramError(f"seconds must be finite and at least 0, not {short(row['seconds'])}.")
    check_created(row["created"])
    _check_outcome(typed("outcome", row["outcome"], _OUTCOME), identity["tasks"])
    return {**row, "seconds": float(row["seconds"])}


def _check_outcome(outcome: Mapping[str, Any], tasks: int) -> None:
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
