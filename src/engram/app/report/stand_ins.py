"""What results' data is called, and what stands in for the paper's: stand_ins.json."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

from engram.app.paper import benchmarks
from engram.app.report.tables import escape_markdown
from engram.errors import EngramError, unknown
from engram.lab.benchmarks import OTHER

_DIGITS = 10
_NAME = re.compile(f"{OTHER}[0-9a-f]{{64}}")
_LONGEST = 60  # letters of a label, which has to fit a heading


def data_name(identity: Mapping[str, Any]) -> str:
    """Return what a result's data is filed under; the oldest results do not say."""
    return str(identity.get("data", ""))


def is_other(name: str) -> bool:
    """Say whether data is known not to be the paper's."""
    return name.startswith(OTHER)


def short_data(name: str) -> str:
    """Return as much of a data's name as a table shows.

    >>> short_data("other-3d648279948a9a1c"), short_data("7ec69f79ce1617ff")
    ('other-3d64827994', '7ec69f79ce')
    """
    digits = name.removeprefix(OTHER)
    return name[: len(name) - len(digits) + _DIGITS]


class StandIn(NamedTuple):
    """What stands in for the data of a benchmark of the paper's, or for its first weights.

    ``label`` is a few words for headings, ``note`` a sentence or two that say all of it.
    """

    benchmark: str
    label: str
    note: str


def stand_in(identity: Mapping[str, Any]) -> StandIn | None:
    """Return what a result's data stands in with, or None where it is no listed stand-in.

    It is known by the name that the data is filed under.
    """
    found = known_stand_ins().get(data_name(identity))
    return found if found is not None and found.benchmark == identity["benchmark"] else None


def read_stand_ins(text: str) -> dict[str, StandIn]:
    """Return the stand-ins of a file by data: ``{"other-…": {"benchmark", "label", "note"}}``.

    An EngramError says what is wrong with it.
    """
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise EngramError(f"stand-ins must be JSON: {error}.") from None
    if not isinstance(entries, dict):
        raise EngramError("stand-ins must be a JSON object, by the names of their data.")
    read = dict[str, StandIn]()
    for name, fields in entries.items():
        if not _NAME.fullmatch(name):
            raise EngramError(
                f"a stand-in's data must be {OTHER} and 64 digits of 0 to f, not {name!r}."
            )
        made = _checked(fields, short_data(name))
        if any(made[:2] == other[:2] for other in read.values()):
            raise EngramError(f"label must not be that of two stand-ins, as {made.label!r} is.")
        read[name] = made
    return read


def _checked(fields: object, name: str) -> StandIn:
    if not isinstance(fields, dict) or set(fields) != set(StandIn._fields):
        raise EngramError(f"stand-in {name} must have {', '.join(StandIn._fields)}, nothing else.")
    for field, value in fields.items():
        if not (isinstance(value, str) and value.isprintable() and value.strip() == value != ""):
            raise EngramError(f"{field} of stand-in {name} must be one line, not {value!r}.")
    made = StandIn(**fields)
    if made.benchmark not in benchmarks():
        raise unknown("benchmark of the paper's", made.benchmark, benchmarks())
    if len(made.label) > _LONGEST or escape_markdown(made.label) != made.label:
        raise EngramError(
            f"label of stand-in {name} must be at most {_LONGEST} plain letters, not "
            f"{made.label!r}."
        )
    return made


@functools.cache
def known_stand_ins() -> Mapping[str, StandIn]:
    """Return the listed stand-ins, by data."""
    file = resources.files("engram.app.report").joinpath("stand_ins.json")
    return read_stand_ins(file.read_text("utf-8"))
