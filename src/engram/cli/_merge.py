"""``engram results --merge``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from engram import runs
from engram.errors import EngramError

_SQLITE = b"SQLite format 3\0"  # how such a file begins


def merge_into(path: Path, source: Path) -> None:
    """Take the results and choices of a store or a file of JSON-lines into a store; say how many.

    What steps were made of comes with them where it lies beside the other store. A source that
    is wrong leaves nothing behind.
    """
    is_store = _is_store(source)
    if is_store and path.exists() and path.samefile(source):
        raise EngramError(f"merge must be another store than {str(path)!r} itself.")
    contents = _of_store(source) if is_store else runs.read_contents(source)
    with runs.Store(path) as store:
        _take_in(contents.rows, "results", store)
        _take_in(contents.choices, "choices", store)
    if is_store:
        for address in {row.address for row in contents.rows}:
            runs.copy_steps(address, source, path)


def _is_store(path: Path) -> bool:
    try:
        if path.exists() and not path.is_file():  # a pipe gives its beginning once
            return False
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error}.") from error


def _of_store(path: Path) -> runs.Contents:
    with runs.Store(path, read_only=True) as store:
        return runs.Contents(store.rows(), store.choices())


def _take_in(
    entries: Sequence[runs.Row] | Sequence[runs.Choice], name: str, store: runs.Store
) -> None:
    if entries or name == "results":
        added = store.add(entries)
        told = f"{added} of {len(entries)} {name} were new and are stored."
        print(told, file=sys.stderr)
