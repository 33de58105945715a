"""Tables from files of their own: CSV by the standard library, Parquet by pyarrow."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from engram.errors import EngramError, shown

Columns = dict[str, list[str]]

_DELIMITERS = ",;\t|"
_MISSING = {"", "?", "n/a", "na", "nan", "none", "null"}
_INDEX = "__index_level_"  # a column that pandas adds, of row numbers


def read_table(path: Path, ignore: Collection[str] = ()) -> Columns:
    """Return a table's columns by name, every value as text; empty where a value is missing.

    Missing are an empty cell and ``?``, ``NA``, ``N/A``, ``NaN``, ``None`` and ``null``. Columns of
    ``ignore`` are there without their values, whatever these are.
    """
    kinds = {".csv": _csv, ".tsv": _csv, ".txt": _csv, ".parquet": _parquet, ".pq": _parquet}
    if path.suffix.lower() not in kinds:
        raise EngramError(f"A table is a file .csv, .tsv, .txt or .parquet, not {str(path)!r}.")
    if not path.is_file():
        raise EngramError(f"table: must be followed by a file, which {str(path)!r} is not.")
    try:
        columns = kinds[path.suffix.lower()](path, ignore)
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    if not any(columns.values()):
        raise EngramError(f"{str(path)!r} has no rows under a header.")
    return columns


def _csv(path: Path, ignore: Collection[str]) -> Columns:
    rows = list[list[str]]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            if not first:
                raise EngramError(f"{str(path)!r} is empty.")
            file.seek(0)
            bare = re.sub('"[^"]*"', "", first)  # a name in quotes may hold any of them
            reader = csv.reader(file, delimiter=max(_DELIMITERS, key=bare.count), strict=True)
            header = [name.strip() for name in next(reader, [])]
            for row in reader:
                if row and len(row) != len(header):
                    raise EngramError(
                        f"{str(path)!r} has {len(row)} values in line {reader.line_num}, where its "
                        f"header has {len(header)}."
                    )
                rows += [row] if row else []  # an empty line is no row
    except UnicodeDecodeError:
        raise EngramError(
            f"{str(path)!r} must be a text in UTF-8, and line {_line_astray(path)} is not: save it "
            "as CSV UTF-8."
        ) from None
    except csv.Error as error:
        raise EngramError(f"{str(path)!r} is no CSV: {error}.") from error
    return _named(path, header, zip(*rows, strict=True), ignore)


def _line_astray(path: Path) -> int:
    """Return which line of a file is the first that is not in UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1  # somebody has mended it since


def _parquet(path: Path, ignore: Collection[str]) -> Columns:
    try:
        from pyarrow import parquet
    except ImportError:
        raise EngramError(
            "Parquet is read by pyarrow, which is not installed: "
            "pip install 'engram-torch[tables]'."
        ) from None
    try:
        with parquet.ParquetFile(path) as file:  # read_table refuses a name that is there twice
            table = file.read()
        columns = dict(enumerate(table.column_names))
    except OSError:
        raise
    except Exception as error:  # it may raise anything at a file that is none
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise EngramError(f"{str(path)!r} is no Parquet file: {reason}.") from error
    kept = {place: name for place, name in columns.items() if not name.startswith(_INDEX)}
    texts = (
        [] if name in ignore else _texts(path, name, table.column(place))
        for place, name in kept.items()
    )
    return _named(path, list(kept.values()), texts, ignore)


def _texts(path: Path, name: str, column: Any) -> list[str]:  # noqa: ANN401 (pyarrow has no types)
    import pyarrow

    kind = column.type
    if pyarrow.types.is_time(kind) or pyarrow.types.is_duration(kind):
        raise _unfit(path, name, "time of day" if pyarrow.types.is_time(kind) else "duration")
    zone = kind.tz if pyarrow.types.is_timestamp(kind) else None
    try:
        if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":  # Python's times have none
            column = column.cast(pyarrow.timestamp("us", zone), safe=False)
        return [_text(path, name, value) for value in column.to_pylist()]
    except EngramError:
        raise
    except Exception as error:  # it may raise anything at a value that Python has none for
        if isinstance(error, OverflowError):
            reason = "a date in it is before the year 1 or after 9999"
        elif isinstance(error, UnicodeDecodeError):
            reason = "a text in it is not UTF-8"
        elif zone is not None:
            reason = f"its time zone {shown(zone)} is not known here"
        else:
            reason = "a value in it is none that Python has"
        raise EngramError(
            f"Column {name!r} of {str(path)!r} ({kind}) cannot be read, as {reason}: leave it out "
            f"with --set ignore={name}."
        ) from error


def _text(path: Path, name: str, value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int | float | Decimal):
        return "" if value is None else str(value)
    raise _unfit(path, name, type(value).__name__)


def _unfit(path: Path, name: str, kind: str) -> EngramError:
    return EngramError(
        f"Column {name!r} of {str(path)!r} must hold texts, numbers or times, not a {kind}: leave "
        f"it out with --set ignore={name}."
    )


def _named(
    path: Path, header: Sequence[str], columns: Iterable[Sequence[str]], ignore: Collection[str]
) -> Columns:
    """Return the columns that have a name: one without is the row numbers that pandas writes."""
    given = list(columns) or [[] for _ in header]
    values = [[] if name in ignore else each for name, each in zip(header, given, strict=True)]
    cleaned = {text: text.strip() for column in values for text in set(column)}
    cleaned |= {text: "" for text in cleaned if cleaned[text].lower() in _MISSING}
    named = Columns()
    for name, column in zip(header, values, strict=True):
        if name in named:
            raise EngramError(f"{str(path)!r} has the column {name!r} twice.")
        if name:
            named[name] = [cleaned[text] for text in column]
    return named
