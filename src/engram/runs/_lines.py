"""Results as JSON-lines: one row a line, to commit, to send and to merge."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from engram.errors import EngramError
from engram.runs._files import whole_file
from engram.runs._row import Row


def write_lines(rows: Iterable[Row], path: Path) -> int:
    """Write rows to a new file, whole or not at all; return how many."""
    if path.exists():
        raise EngramError(f"{str(path)!r} exists already: merge it and remove it, or name another.")
    lines = [f"{row.line}\n" for row in rows]
    with whole_file(path) as part:
        part.write_text("".join(lines), "utf-8")
    return len(lines)


def read_lines(path: Path) -> list[Row]:
    """Return the rows of a file; an EngramError names the first line that is not one."""
    rows = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    rows.append(_row(line, f"Line {number} of {str(path)!r}"))
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error}.") from error
    return rows


def _row(line: bytes, where: str) -> Row:
    try:
        return Row.of(json.loads(line.decode(), parse_constant=_refuse))
    except EngramError as error:
        raise EngramError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise EngramError(f"{where} is not JSON: {error}.") from None


def _refuse(constant: str) -> NoReturn:
    raise EngramError(f"{constant} is not a number.")
