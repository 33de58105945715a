"""What a row must be before it enters a store, whoever made it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from engram.errors import EngramError
from engram.runs._address import address

TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"

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
_IDENTITY = {"benchmark": str, "method": str, "tasks": int, "examples": int, "settings": dict}
_OUTCOME = {"accuracy": list, "curve": list, "facts": dict, "failure": (str, type(None))}


def check_row(fields: object) -> dict[str, Any]:
    """Return the fields of a row if they are whole and sound; EngramError says what is wrong."""
    row = _typed("row", fields, _ROW)
    if unknown := sorted(map(repr, row.keys() - _ROW.keys())):
        raise EngramError(f"A row has no field {unknown[0]}.")
    _check_strings(row)
    identity = _typed("identity", row["identity"], _IDENTITY)
    for name in ("benchmark", "method"):
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", identity[name]):
            raise EngramError(f"identity.{name} must be a plain name, not {identity[name]!r}.")
    for name in ("tasks", "examples"):
        if identity[name] < 1:
            raise EngramError(f"identity.{name} must be at least 1, not {identity[name]}.")
    if not 0 <= row["seed"] < 2**63:
        raise EngramError(f"seed must be from 0 to 2^63 - 1, not {row['seed']}.")
    if row["address"] != address(identity, row["seed"]):
        raise EngramError(f"address {row['address'][:10]!r} is not that of its identity and seed.")
    if not (math.isfinite(row["seconds"]) and row["seconds"] >= 0):
        raise EngramError(f"seconds must be finite and at least 0, not {row['seconds']}.")
    try:
        datetime.strptime(row["created"], TIME_FORMAT)
    except ValueError:
        raise EngramError(
            f"created must look like {TIME_FORMAT}, not {row['created']!r}."
        ) from None
    _check_outcome(_typed("outcome", row["outcome"], _OUTCOME), identity["tasks"])
    return {**row, "seconds": float(row["seconds"])}


def _typed(name: str, value: object, types: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EngramError(f"{name} must be a JSON object, not {_short(value)}.")
    for key, kind in types.items():
        if key not in value:
            raise EngramError(f"{name} lacks the field {key!r}.")
        allowed = (int, float) if kind is float else kind
        if not isinstance(value[key], allowed) or isinstance(value[key], bool):
            raise EngramError(f"{name}.{key} has the wrong type: {_short(value[key])}.")
    return value


def _check_outcome(outcome: Mapping[str, Any], tasks: int) -> None:
    for name in ("accuracy", "curve"):
        for row in outcome[name]:
            if not isinstance(row, list):
                raise EngramError(f"outcome.{name} must be a list of lists.")
            for entry in row:
                if not _is_fraction(entry) and not (name == "accuracy" and entry is None):
                    raise EngramError(f"outcome.{name} holds {_short(entry)}, not a fraction.")
    if [len(row) for row in outcome["accuracy"]] != [tasks] * tasks:
        raise EngramError(f"outcome.accuracy must have {tasks} rows of {tasks} entries.")
    if len(outcome["curve"]) not in (0, tasks) and outcome["failure"] is None:
        raise EngramError(f"outcome.curve must have {tasks} rows, not {len(outcome['curve'])}.")


def _is_fraction(entry: object) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool) and 0 <= entry <= 1


def _check_strings(value: object) -> None:
    # Names and sentences end up on terminals and in pages: no control characters, no line breaks.
    if isinstance(value, str) and not value.isprintable():
        raise EngramError(f"A row may hold printable text only, not {_short(value)}.")
    if isinstance(value, dict):
        for key, entry in value.items():
            _check_strings(key)
            _check_strings(entry)
    elif isinstance(value, list):
        for entry in value:
            _check_strings(entry)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
