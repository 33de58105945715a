"""The tables of a store, by the version of the schema that brought them."""

from __future__ import annotations

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


def statements(since: int, until: int = VERSION) -> list[str]:
    """Return what brings a store of one version, 0 being an empty file, to another."""
    steps = (_RESULTS, _CHOICES)
    tables = [statement for step in steps[since:until] for statement in step]
    return [*tables, f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {until}"]
