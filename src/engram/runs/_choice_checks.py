"""What a choice must be before it enters a store, whoever made it."""

from __future__ import annotations

from typing import Any

from engram.errors import EngramError
from engram.runs._field_checks import (
    check_created,
    check_identity,
    check_known,
    check_plain,
    check_settings,
    check_versions,
    short,
    typed,
    within,
)

_CHOICE = {
    "format": str,
    "identity": dict,
    "seeds": int,
    "chosen": dict,
    "score": float,
    "trials": list,
    "device": str,
    "created": str,
    "versions": dict,
    "command": str,
}
_TRIAL = {"settings": dict, "score": (int, float, type(None)), "values": list}


def check_choice(fields: object, form: str) -> dict[str, Any]:
    """Return the fields of a choice if they are whole and sound; EngramError says what is wrong."""
    choice = typed("choice", fields, {"format": str})
    if choice["format"] != form:
        raise EngramError(f"format must be {form!r}, not {short(choice['format'])}.")
    typed("choice", choice, _CHOICE)
    check_known("choice", choice, _CHOICE)
    check_plain(choice)
    if check_identity(choice["identity"]).get("split") != "tuning":
        raise EngramError("A choice must be made on tuning tasks.")
    check_created(choice["created"])
    check_versions(choice["versions"])
    if choice["seeds"] < 1:
        raise EngramError(f"seeds must be at least 1, not {choice['seeds']}.")
    for trial in choice["trials"]:
        _check_trial(trial, choice["seeds"])
    return choice


def _check_trial(fields: object, seeds: int) -> None:
    trial = typed("trial", fields, _TRIAL)
    check_known("trial", trial, _TRIAL)
    if len(trial["values"]) != seeds:
        raise EngramError(f"trial.values must have {seeds} entries, one for each seed.")
    for value in trial["values"]:
        if value is not None and not within(value, 100):
            raise EngramError(f"trial.values holds {short(value)}, not a percentage.")
    check_settings("trial", trial["settings"])
