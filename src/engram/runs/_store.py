"""The result store: one SQLite file that only grows."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from engram.errors import EngramError
from engram.runs._address import canonical
from engram.runs._choice import Choice
from engram.runs._row import Row
from engram.runs._schema import APPLICATION, VERSION, statements

_PATIENCE = 60.0  # seconds to wait for another process that is writing

_NAMES = tuple(field.name for field in dataclasses.fields(Row))
_COLUMNS = ", ".join(_NAMES)
_JSON = ("identity", "outcome", "versions")
_NO_JSON = (ValueError, TypeError, RecursionError)  # what comes of reading it as JSON


class Store:
    """Results of finished runs and choices made from them, appended and never changed.

    Any number of processes may use one file. It is kept with SQLite's rollback journal rather
    than a write-ahead log: writes are few and small, and a store stays one file that can be
    copied, read from a read-only folder and put on a network drive.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with self._told():
            if path.is_dir():
                raise EngramError(f"The store {str(path)!r} is a folder; give the path of a file.")
            if read_only and not path.is_file():
                raise EngramError(f"There is no store at {str(path)!r}.")
            path.parent.mkdir(parents=True, exist_ok=True)
            # An absolute path, as SQLite gives names like ":memory:" a meaning of its own.
            self._connection = sqlite3.connect(
                path.absolute(), timeout=_PATIENCE, isolation_level=None
            )
            try:
                self._prepare(read_only)
            except BaseException:
                self._connection.close()
                raise

    def add(self, entries: Iterable[Row | Choice]) -> int:
        """Append rows and choices in one transaction; return how many were not there yet."""
        with self._told(), self._transaction():
            return sum(self._insert(entry) for entry in entries)

    def check_writable(self) -> None:
        """Refuse a file that will take no results: to lock one that may only be read is allowed."""
        with self._told(), self._transaction():
            self._connection.execute("DELETE FROM results WHERE 0")

    def newest(self, address: str) -> Row | None:
        """Return the latest row at an address, or None."""
        rows = self._select("WHERE address = ? ORDER BY created DESC, id DESC LIMIT 1", address)
        return rows[0] if rows else None

    def count(self, address: str) -> int:
        """Return how many rows there are at an address."""
        with self._told():
            statement = "SELECT count(*) FROM results WHERE address = ?"
            return int(self._connection.execute(statement, (address,)).fetchone()[0])

    def rows(self) -> list[Row]:
        """Return every row, in the order they came in."""
        return self._select("ORDER BY id")

    def choices(self) -> list[Choice]:
        """Return every choice, the oldest first."""
        if self._version < 2:  # a file of before that was opened for reading only
            return []
        with self._told():
            lines = self._connection.execute("SELECT line FROM choices ORDER BY created, id")
            return [Choice.of(json.loads(line)) for (line,) in lines]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self, read_only: bool) -> None:
        if read_only:
            self._version = self._find_version()
            if self._version == 0:
                raise EngramError(f"The store {str(self.path)!r} is empty.")
            return
        with self._transaction():  # takes the lock: another process may be making the same one
            found = self._find_version()
            if found < VERSION:
                for statement in statements(found):
                    self._connection.execute(statement)
            self._version = VERSION

    def _find_version(self) -> int:
        """Return the version of the schema, 0 for a new file."""
        application = self._connection.execute("PRAGMA application_id").fetchone()[0]
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == version == tables == 0:
            return 0
        if application != APPLICATION:
            raise EngramError(f"{str(self.path)!r} is another program's database, not a store.")
        if version > VERSION:
            raise EngramError(
                f"The store {str(self.path)!r} has schema {version}, newer than this Engram's "
                f"{VERSION}: use a newer Engram."
            )
        return version

    def _insert(self, entry: Row | Choice) -> int:
        fields: dict[str, Any] = {"digest": entry.digest}
        if isinstance(entry, Choice):
            table = "choices"
            fields |= {"created": entry.created, "line": entry.line}
        else:
            table = "results"
            fields |= {name: _column(name, getattr(entry, name)) for name in _NAMES}
        marks = ", ".join("?" * len(fields))
        statement = f"INSERT OR IGNORE INTO {table} ({', '.join(fields)}) VALUES ({marks})"
        return self._connection.execute(statement, list(fields.values())).rowcount

    def _select(self, condition: str, *parameters: str) -> list[Row]:
        with self._told():
            statement = f"SELECT {_COLUMNS} FROM results {condition}"
            return [_row(values) for values in self._connection.execute(statement, parameters)]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # SQLite may have rolled back a full disk itself
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except EngramError:
            raise
        except (sqlite3.Error, OSError, *_NO_JSON) as error:
            raise EngramError(f"The store {str(self.path)!r} cannot be used: {error}.") from error


def _column(name: str, value: object) -> object:
    return canonical(value) if name in _JSON else value


def _row(values: Sequence[Any]) -> Row:
    fields = dict(zip(_NAMES, values, strict=True))
    return Row.of({**fields, **{name: json.loads(fields[name]) for name in _JSON}})
