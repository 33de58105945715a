"""The result store: one SQLite file that only grows."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from engram.errors import EngramError
from engram.runs._choice import Choice
from engram.runs._row import Row
from engram.runs._schema import APPLICATION, VERSION, statements
from engram.runs._stored import (
    CHOICE_COLUMNS,
    ROW_COLUMNS,
    DamagedError,
    choice_of,
    columns_of,
    row_of,
)

_PATIENCE = 60.0  # seconds to wait for another process that is writing
_LOG = logging.getLogger(__name__)
_Entry = TypeVar("_Entry", Row, Choice)


class Store:
    """Results of finished runs and choices made from them, appended and never changed.

    Any number of processes may use one file. It is kept with SQLite's rollback journal rather
    than a write-ahead log: writes are few and small, and a store stays one file that can be
    copied, read from a read-only folder and put on a network drive.

    What is read is what was stored: SQLite checks the file when it is opened, and every entry is
    held to its digest when it is read. A damaged one is an EngramError that names it. One that is
    whole, but that no run can have made, is set aside, and a warning names it: an earlier Engram
    may have taken it in.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with self._told():
            if path.is_dir():
                raise EngramError(f"The store {str(path)!r} is a folder; give the path of a file.")
            if read_only and not path.is_file():
                raise EngramError(f"There is no store at {str(path)!r}.")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = connect(path)
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
        with self._told():
            found = self._rows("WHERE address = ? ORDER BY created DESC, id DESC", address)
            return next(found, None)

    def count(self, address: str) -> int:
        """Return how many rows there are at an address."""
        with self._told():
            statement = "SELECT count(*) FROM results WHERE address = ?"
            return int(self._connection.execute(statement, (address,)).fetchone()[0])

    def rows(self) -> list[Row]:
        """Return every row, in the order they came in."""
        with self._told():
            return list(self._rows("ORDER BY id"))

    def choices(self) -> list[Choice]:
        """Return every choice, the oldest first."""
        if self._version < 2:  # a file of before that was opened for reading only
            return []
        with self._told():
            entries = select(self._connection, "choices", CHOICE_COLUMNS, "ORDER BY created, id")
            return list(self._sound("Choice", entries, lambda digest, has: choice_of(digest, *has)))

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
            self._version = find_version(self._connection, self.path)
            if self._version == 0:
                raise EngramError(f"The store {str(self.path)!r} is empty.")
            self._check_structure()
            return
        with self._transaction():  # takes the lock: another process may be making the same one
            found = find_version(self._connection, self.path)
            if found:
                self._check_structure()
            if found < VERSION:
                for statement in statements(found):
                    self._connection.execute(statement)
            self._version = VERSION

    def _check_structure(self) -> None:
        """Refuse a file that SQLite finds damaged, as it may have lost rows."""
        ((found,),) = self._connection.execute("PRAGMA integrity_check(1)")
        if found != "ok":
            raise EngramError(
                f"The store {str(self.path)!r} is damaged, SQLite says: {' '.join(found.split())}; "
                f"{_REMEDY}"
            )

    def _insert(self, entry: Row | Choice) -> int:
        table = "choices" if isinstance(entry, Choice) else "results"
        fields = columns_of(entry)
        marks = ", ".join("?" * len(fields))
        statement = f"INSERT OR IGNORE INTO {table} ({', '.join(fields)}) VALUES ({marks})"
        return self._connection.execute(statement, list(fields.values())).rowcount

    def _rows(self, condition: str, *parameters: str) -> Iterator[Row]:
        entries = select(self._connection, "results", ROW_COLUMNS, condition, *parameters)
        return self._sound("Row", entries, row_of)

    def _sound(
        self, kind: str, entries: Iterable[Stored], of: Callable[[object, Sequence[Any]], _Entry]
    ) -> Iterator[_Entry]:
        """Yield the entries that can be used, and tell of the others."""
        for number, digest, values in entries:
            name = f"{kind} {number} of the store {str(self.path)!r}"
            try:
                yield of(digest, values)
            except DamagedError as error:
                raise EngramError(f"{name} is damaged: {str(error)[:-1]}; {_REMEDY}") from None
            except EngramError as error:
                _warn_once(f"{name} is set aside: {error}")

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
        except (sqlite3.Error, OSError, ValueError) as error:  # a value: no name for a file
            raise EngramError(f"The store {str(self.path)!r} cannot be used: {error}.") from error


Stored = tuple[int, object, Sequence[Any]]
"""The number of an entry, its digest and its other columns."""

_REMEDY = (
    "put a copy in its place, or have what is whole written to a file with "
    "`engram results --verify --export FILE`."
)


def connect(path: Path) -> sqlite3.Connection:
    """Open a file with SQLite."""
    # An absolute path, as SQLite gives names like ":memory:" a meaning of its own.
    connection = sqlite3.connect(path.absolute(), timeout=_PATIENCE, isolation_level=None)
    # A text that is damaged is then another, by its digest, and not an error of SQLite's.
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    return connection


def select(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    condition: str,
    *parameters: str | int,
) -> Iterator[Stored]:
    """Yield entries of a table, which is not locked meanwhile."""
    statement = f"SELECT id, digest, {', '.join(columns)} FROM {table} {condition}"
    for number, digest, *values in connection.execute(statement, parameters).fetchall():
        yield number, digest, values


def find_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of a store's schema, 0 for a new file; refuse what is no store."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == version == tables == 0:
        return 0
    if application != APPLICATION:
        raise EngramError(f"{str(path)!r} is another program's database, not a store.")
    if version > VERSION:
        raise EngramError(
            f"The store {str(path)!r} has schema {version}, newer than this Engram's "
            f"{VERSION}: use a newer Engram."
        )
    if version < 1:
        raise EngramError(f"The store {str(path)!r} is damaged: no store has schema {version}.")
    return version


@cache
def _warn_once(sentence: str) -> None:
    _LOG.warning(sentence)
