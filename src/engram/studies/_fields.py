"""What a study's file may say: its fields, and what each of them holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from engram.errors import EngramError, shown, unknown
from engram.settings import Scalar
from engram.studies._source import Source
from engram.studies._study import Runs

_BEYOND = 2**63  # TOML's own numbers end before it, though its reader's do not


class _Kind(NamedTuple):
    wanted: str
    fits: Callable[[Any], bool]


def _texts(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _count(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < _BEYOND


def _setting(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, Scalar) and not (isinstance(value, int) and abs(value) >= _BEYOND)


_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_NAMES = _Kind("a list of names", _texts)
_NUMBER = _Kind("a whole number of at least 1", _count)
_STUDY = {
    "title": _TEXT,
    "include": _NAMES,
    "runs": _Kind("a list of tables, [[runs]]", lambda value: isinstance(value, list)),
}
_RUNS = {
    "benchmark": _TEXT,
    "methods": _NAMES,
    "seeds": _NUMBER,
    "tasks": _NUMBER,
    "examples": _NUMBER,
    "settings": _Kind("a table of settings", lambda value: isinstance(value, dict)),
    "record_every": _NUMBER,
}
_SETTING = _Kind("a number, a text, true or false", _setting)
_NEEDED = ("benchmark", "methods")


def check_study(document: Mapping[str, Any], source: Source) -> None:
    """Refuse a file with fields that nobody knows, or of the wrong kind; runs come later."""
    for name, value in document.items():
        if name not in _STUDY:
            raise source.error(unknown("field", name, _STUDY), name)
        if not _STUDY[name].fits(value):
            raise source.error(_misfit(name, value, _STUDY[name]), name)
    if "title" not in document:
        raise source.error(EngramError("A study must have a title, a text."), "title")
    if not document.get("runs") and not document.get("include"):
        raise source.error(
            EngramError("A study must have runs, a table [[runs]] or more, or include others."),
            "runs",
        )


def as_runs(given: Any, number: int, source: Source) -> Runs:  # noqa: ANN401
    """Return an entry of a study if its fields are known and of the right kind."""
    if not isinstance(given, dict):
        raise source.error(f"runs must be tables, not {shown(given)}.", "runs", entry=number)
    for name, value in given.items():
        if name not in _RUNS:
            raise source.error(unknown("field", name, _RUNS), name, entry=number)
        if not _RUNS[name].fits(value):
            raise source.error(_misfit(name, value, _RUNS[name]), name, entry=number)
    for name, value in given.get("settings", {}).items():
        if not _SETTING.fits(value):
            raise source.error(
                _misfit(name, value, _SETTING), name, entry=number, inside="settings"
            )
    for name in _NEEDED:
        if name not in given:
            raise source.error(f"{name} is missing: {_RUNS[name].wanted}.", name, entry=number)
    methods = tuple(given["methods"])
    for method in methods:
        if methods.count(method) > 1:
            raise source.error(
                f"The method {method!r} is named twice.", "methods", method, entry=number
            )
    return Runs(**{**given, "methods": methods})


def _misfit(name: str, value: object, kind: _Kind) -> str:
    return f"{name} must be {kind.wanted}, not {shown(value)}."
