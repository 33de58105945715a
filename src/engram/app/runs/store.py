"""The result store: one SQLite file that only grows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from engram.app.runs.choices import Choice
from engram.app.runs.rows import Row, canonical
from engram.errors import EngramError

DEFAULT_STORE = Path("engram-results/store.sqlite")
VERSION = 2  # a store of a newer one is refused, one of an older one brought up to date
APPLICATION = 0x456E6772  # "Engr", written into the file's header

_RESULTS = (
    """CREATE TABLE results (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
        address TEXT NOT NULL, seed INTEGER NOT NULL, identity TEXT NOT NULL,
        outcome TEXT NOT NULL, device TEXT NOT NULL, seconds REAL NOT NULL,
        created TEXT NOT NULL, versions TEXT NOT NULL, command TEXT NOT NULL)""",
    "CREATE INDEX results_by_address ON results (address)",
    """CREATE TRIGGER results_never_change BEFORE UPDATE ON results
        BEGIN SELECT RAISE(ABORT, 'results are never changed'); END""",
    """CREATE TRIGGER results_never_go BEFORE DELETE ON results
        BEGIN SELECT RAISE(ABORT, 'results are never deleted'); END""",
)
_CHOICES = (
    """CREATE TABLE choices (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
        created TEXT NOT NULL, line TEXT NOT NULL)""",
    """CREATE TRIGGER choices_never_change BEFORE UPDATE ON choices
        BEGIN SELECT RAISE(ABORT, 'choices are never changed'); END""",
    """CREATE TRIGGER choices_never_go BEFORE DELETE ON choices
        BEGIN SELECT RAISE(ABORT, 'choices are never deleted'); END""",
)

ROW_COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
CHOICE_COLUMNS = ("created", "line")
_JSON = ("identity", "outcome", "versions")

_PATIENCE = 60.0  # seconds to wait for another process that is writing
_LOG = logging.getLogger(__name__)
_Entry = TypeVar("_Entry", Row, Choice)

Stored = tuple[int, object, Sequence[Any]]
"""The number of an entry, its digest and its other columns."""

_REMEDY = (
    "put a copy in its place, or have what is whole written to a file with "
    "`engram results --verify --export FILE`."
)


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
        with self._one_error():
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

    def add(
        self, entries: Iterable[Row | Choice], *, after: Mapping[str, int] | None = None
    ) -> int:
        """Append rows and choices in one transaction; return how many were not there yet.

        ``after`` says by address how many rows were there when a run was planned. Where there are
        more by now, somebody else has stored the same run, and it is not stored twice.
        """
        before = after or {}
        with self._one_error(), self._transaction():
            return sum(
                self._insert(entry)
                for entry in entries
                if isinstance(entry, Choice)
                or entry.address not in before
                or self._count(entry.address) <= before[entry.address]
            )

    def check_writable(self) -> None:
        """Refuse a file that will take no results: to lock one that may only be read is allowed."""
        with self._one_error(), self._transaction():
            self._connection.execute("DELETE FROM results WHERE 0")

    def newest(self, address: str) -> Row | None:
        """Return the latest row at an address, or None."""
        with self._one_error():
            found = self._rows("WHERE address = ? ORDER BY created DESC, id DESC", address)
            return next(found, None)

    def count(self, address: str) -> int:
        """Return how many rows there are at an address."""
        with self._one_error():
            return self._count(address)

    def rows(self) -> list[Row]:
        """Return every row, in the order they came in."""
        with self._one_error():
            return list(self._rows("ORDER BY id"))

    def choices(self) -> list[Choice]:
        """Return every choice, the oldest first."""
        if self._version < 2:  # a file of before that was opened for reading only
            return []
        with self._one_error():
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

    def _count(self, address: str) -> int:
        statement = "SELECT count(*) FROM results WHERE address = ?"
        return int(self._connection.execute(statement, (address,)).fetchone()[0])

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
        """Yield the entries that can be used, and warn of the others."""
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
    def _one_error(self) -> Iterator[None]:
        try:
            yield
        except EngramError:
            raise
        except (sqlite3.Error, OSError, ValueError) as error:  # a value: no name for a file
            raise EngramError(f"The store {str(self.path)!r} cannot be used: {error}.") from error


def statements(since: int, until: int = VERSION) -> list[str]:
    """Return what brings a store of one version, 0 being an empty file, to another."""
    steps = (_RESULTS, _CHOICES)
    tables = [statement for step in steps[since:until] for statement in step]
    return [*tables, f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {until}"]


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
