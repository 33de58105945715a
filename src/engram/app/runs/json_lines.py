"""Results as JSON-lines: one row or choice a line, to commit, to send and to merge."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

from engram.app.runs.choices import Choice
from engram.app.runs.rows import Row
from engram.errors import EngramError
from engram.files import whole_file

_LONGEST = 2**26  # bytes of a line: what goes on and on is no file of results


class Contents(NamedTuple):
    """What a file of JSON-lines holds."""

    rows: list[Row]
    choices: list[Choice]


def check_new(path: Path) -> None:
    """Refuse the name of a file that exists, before anything is done for it."""
    if path.exists():
        raise EngramError(f"{str(path)!r} exists already: merge it and remove it, or name another.")


def write_lines(entries: Iterable[Row | Choice], path: Path) -> int:
    """Write rows and choices to a new file, whole or not at all; return how many.

    Each line ends with the digest of the rest of it, which it is held to when it is read.
    """
    check_new(path)
    lines = [f'{entry.line[:-1]},"digest":"{entry.digest}"}}\n' for entry in entries]
    with whole_file(path) as part:
        part.write_text("".join(lines), "utf-8")
    return len(lines)


def read_lines(path: Path) -> list[Row]:
    """Return the rows of a file; an EngramError names the first line that is none, nor a choice."""
    return read_contents(path).rows


def read_contents(path: Path) -> Contents:
    """Return all that a file holds; an EngramError names the first line that is wrong."""
    found = Contents([], [])
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                if line.strip():
                    _take(line, f"Line {number} of {str(path)!r}", found)
    except (OSError, ValueError) as error:  # a value: no name for a file
        if isinstance(error, EngramError):
            raise
        raise EngramError(f"{str(path)!r} cannot be read: {error}.") from error
    return found


def _take(line: bytes, where: str, found: Contents) -> None:
    try:
        fields = json.loads(line.decode(), parse_constant=_refuse)
        named = fields if isinstance(fields, dict) else {}
        digest = named.pop("digest", None)  # lines of before have none
        entry: Row | Choice
        if "format" in named:  # a row, from before choices, has none
            found.choices.append(entry := Choice.of(fields))
        else:
            found.rows.append(entry := Row.of(fields))
        if digest not in (None, entry.digest):
            raise EngramError(
                "its digest is not that of the rest of it, so it was changed after it was written: "
                "have it written again."
            )
    except EngramError as error:
        raise EngramError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise EngramError(f"{where} is not JSON: {error}.") from None


def _refuse(constant: str) -> NoReturn:
    raise EngramError(f"{constant} is not a number.")
