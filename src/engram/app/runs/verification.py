"""A store looked at as a whole: what is whole in it, and what is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from engram.app.runs.choices import Choice
from engram.app.runs.rows import Row
from engram.app.runs.step_files import read_steps, steps_folder
from engram.app.runs.store import (
    CHOICE_COLUMNS,
    ROW_COLUMNS,
    Stored,
    choice_of,
    connect,
    find_version,
    row_of,
    select,
    statements,
)
from engram.errors import EngramError, on_one_line

_Entry = TypeVar("_Entry", Row, Choice)


class Verification(NamedTuple):
    """What of a store, and of the step records beside it, is what was stored."""

    rows: list[Row]
    choices: list[Choice]
    step_files: list[Path]
    faults: list[str]  # a sentence for each thing that is not; none: all is whole
    seen: dict[str, int]  # how many there are of each, whole or not


def verify(path: Path) -> Verification:
    """Look at everything in a store.

    Every entry is held to its digest, its address to what was run, the file to SQLite's own check
    and to the tables it must have, and every file of step records to its checksum. What is no
    store at all is refused.
    """
    if not path.is_file():
        raise EngramError(f"There is no store at {str(path)!r}.")
    found = Verification([], [], [], [], dict.fromkeys(Verification._fields[:3], 0))
    try:
        with closing(connect(path)) as connection:
            _check_file(connection, path, found.faults)
            for number, entry in _entries(connection, "results", ROW_COLUMNS):
                found.seen["rows"] += 1
                _take(found.rows, row_of, f"Row {number}", entry, found.faults)
            for number, entry in _entries(connection, "choices", CHOICE_COLUMNS):
                found.seen["choices"] += 1
                _take(found.choices, _choice, f"Choice {number}", entry, found.faults)
    except sqlite3.Error as error:
        raise EngramError(f"The store {str(path)!r} cannot be read: {error}.") from error
    _check_steps(path, found)
    return found


def _check_file(connection: sqlite3.Connection, path: Path, faults: list[str]) -> None:
    version = find_version(connection, path)
    if version == 0:
        raise EngramError(f"The store {str(path)!r} is empty.")
    try:
        found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
        faults += [f"SQLite says: {on_one_line(text)}." for text in found if text != "ok"]
    except sqlite3.Error as error:
        faults.append(f"SQLite says: {error}.")
    with closing(sqlite3.connect(":memory:")) as model:
        for statement in statements(0, version):
            model.execute(statement)
        wanted, there = _schema(model), _schema(connection)
    faults += [
        f"SQLite's {name!r} is not as it was made."
        for name in sorted(wanted.keys() | there.keys())
        if wanted.get(name) != there.get(name)
    ]


def _schema(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return tables, indices and triggers by name, with what made them."""
    entries = connection.execute("SELECT name, type, tbl_name, sql FROM sqlite_master")
    return {
        str(name): (str(kind), str(table), " ".join(str(sql).split()))
        for name, kind, table, sql in entries
    }


def _take(
    whole: list[_Entry],
    of: Callable[[object, Sequence[Any]], _Entry],
    name: str,
    entry: Stored | None,
    faults: list[str],
) -> None:
    try:
        if entry is None:
            raise EngramError("it cannot be read.")
        whole.append(of(*entry[1:]))
    except EngramError as error:
        faults.append(f"{name}: {error}")


def _entries(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[tuple[int, Stored | None]]:
    """Yield the entries by number, None for one that SQLite cannot read.

    One by one, by the numbers that the table or one of its indices has: damage of one page hides
    no other. A store of an early version has no table of choices, and so none of them.
    """
    numbers = set[int]()
    for statement in (
        f"SELECT id FROM {table} NOT INDEXED ORDER BY id",
        f"SELECT id FROM {table} ORDER BY digest",
    ):
        with suppress(sqlite3.Error):
            for (number,) in connection.execute(statement):
                numbers.add(number)
    for number in sorted(numbers):
        entry = None
        with suppress(sqlite3.Error):
            entry = next(select(connection, table, columns, "WHERE id = ?", number), None)
        yield number, entry


def _choice(digest: object, values: Sequence[Any]) -> Choice:
    return choice_of(digest, *values)


def _check_steps(path: Path, found: Verification) -> None:
    folder = steps_folder(path)
    for file in sorted(folder.glob("[!.]*.safetensors")):  # with a dot they are being written
        found.seen["step_files"] += 1
        try:
            read_steps(file, file.stem)
            found.step_files.append(file)
        except EngramError as error:
            found.faults.append(str(error))
