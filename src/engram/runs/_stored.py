"""Entries as a store's columns hold them, held to the digest that is stored beside them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from engram.errors import EngramError
from engram.runs._address import canonical
from engram.runs._choice import Choice
from engram.runs._row import Row

ROW_COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
CHOICE_COLUMNS = ("created", "line")
_JSON = ("identity", "outcome", "versions")


class DamagedError(EngramError):
    """An entry whose contents are not those that its digest was made of."""


def columns_of(entry: Row | Choice) -> dict[str, Any]:
    """Return what a store writes for an entry, by column."""
    if isinstance(entry, Choice):
        return {"digest": entry.digest, "created": entry.created, "line": entry.line}
    fields = {name: _column(name, getattr(entry, name)) for name in ROW_COLUMNS}
    return {"digest": entry.digest, **fields}


def row_of(digest: object, values: Sequence[Any]) -> Row:
    """Return the row of the columns ``ROW_COLUMNS``.

    A DamagedError says that they are not what was stored, any other EngramError what is wrong with
    what was stored.
    """
    fields = dict(zip(ROW_COLUMNS, values, strict=True))
    try:  # as `Row.line` is made, but of the texts themselves: nothing is parsed before it is known
        texts = {name: _text(name, value) for name, value in sorted(fields.items())}
    except (TypeError, ValueError):  # a value that no row has
        raise DamagedError("its digest is not that of its contents.") from None
    _check_digest(digest, "{" + ",".join(f'"{key}":{text}' for key, text in texts.items()) + "}")
    return Row.of({**fields, **{name: _parsed(fields[name]) for name in _JSON}})


def choice_of(digest: object, created: object, line: object) -> Choice:
    """Return the choice of a line; errors as `row_of` has them."""
    _check_digest(digest, line)
    choice = Choice.of(_parsed(line))
    if created != choice.created:  # which is no part of the line's digest, and orders choices
        raise DamagedError("its time is not that of its contents.")
    return choice


def _column(name: str, value: object) -> object:
    return canonical(value) if name in _JSON else value


def _text(name: str, value: object) -> str:
    if name not in _JSON:
        return canonical(value)
    if not isinstance(value, str):
        raise TypeError
    return value


def _check_digest(digest: object, line: object) -> None:
    if not isinstance(line, str) or hashlib.sha256(line.encode()).hexdigest() != digest:
        raise DamagedError("its digest is not that of its contents.")


def _parsed(text: Any) -> object:  # noqa: ANN401
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EngramError(f"it is not JSON: {error}.") from None
