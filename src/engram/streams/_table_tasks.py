"""Which task a row of a table is of, and of which class."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np

from engram.data import natural
from engram.errors import EngramError
from engram.streams._split import Numbers

_PERIODS: dict[str, Callable[[datetime], str]] = {
    "year": lambda time: f"{time.year:04}",
    "quarter": lambda time: f"{time.year:04}-Q{(time.month + 2) // 3}",
    "month": lambda time: f"{time.year:04}-{time.month:02}",
    "week": lambda time: "{:04}-W{:02}".format(*time.isocalendar()),
}


def by_value(column: str, texts: Sequence[str]) -> dict[str, Numbers]:
    """Return the rows of each value of a column: by number, or else in the order they come in."""
    _check_filled("task", column, texts)
    values = list(dict.fromkeys(texts))
    if (numbers := as_numbers(values)) is not None:
        values = [values[place] for place in np.argsort(numbers, kind="stable")]
    return _rows_by(texts, values)


def by_time(column: str, texts: Sequence[str], period: str, parts: int) -> dict[str, Numbers]:
    """Return the rows of each period, or of ``parts`` equal parts, the earliest first.

    Rows of one time stay in one part.
    """
    _check_filled("time", column, texts)
    if period == "equal":
        return _equal_parts(column, _order(column, texts), parts)
    _check_calendar(column, texts, period)
    each = dict.fromkeys(texts)  # so that of several mistakes the first is told
    named = {text: _PERIODS[period](_time(column, texts, text)) for text in each}
    return _rows_by([named[text] for text in texts], sorted(set(named.values())))


def classes_of(column: str, texts: Sequence[str]) -> tuple[Numbers, list[str]]:
    """Return each row's class as a number, and the classes' names in order."""
    _check_filled("target", column, texts)
    names = sorted(set(texts), key=natural)
    numbers = as_numbers(names)
    if numbers is not None:
        names = [names[place] for place in np.argsort(numbers, kind="stable")]
    measured = numbers is not None and bool((numbers != np.floor(numbers)).any())
    if measured or 2 * len(names) > len(texts):
        raise EngramError(
            f"target must be a column of classes, and {column!r} has {len(names):,} different "
            f"values in {len(texts):,} rows: cut it into ranges first."
        )
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[text] for text in texts]), names


def as_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Return texts as finite numbers, or None if one of them is none."""
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _order(column: str, texts: Sequence[str]) -> np.ndarray:
    """Return something that sorts the rows by time."""
    numbers = as_numbers(texts)
    if numbers is not None:
        return numbers
    times = {text: _time(column, texts, text).timestamp() for text in dict.fromkeys(texts)}
    return np.array([times[text] for text in texts])


def _equal_parts(column: str, order: np.ndarray, parts: int) -> dict[str, Numbers]:
    before = np.searchsorted(np.sort(order), order)  # how many rows are earlier
    part = before * min(parts, len(order) + 1) // len(order)  # more leave one empty anyway
    if len(np.unique(part)) < parts:
        raise EngramError(
            f"parts must be fewer than {parts} for column {column!r}, which has "
            f"{len(np.unique(order)):,} different times in {len(order):,} rows."
        )
    return {f"part {number + 1}": np.flatnonzero(part == number) for number in range(parts)}


def _rows_by(texts: Sequence[str], values: Sequence[str]) -> dict[str, Numbers]:
    places = {value: place for place, value in enumerate(values)}
    tasks = np.array([places[text] for text in texts])
    return {value: np.flatnonzero(tasks == place) for value, place in places.items()}


def _time(column: str, texts: Sequence[str], text: str) -> datetime:
    short = re.fullmatch(r"\d{4}(-\d\d)?", text)  # a year, or a month
    rest = "" if not short else "-01" if short[1] else "-01-01"
    try:
        time = datetime.fromisoformat(text + rest)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: before the year 1, or after 9999, in UTC
        raise EngramError(
            f"Column {column!r} must hold dates like 2024-12-31 or times like 2024-12-31T23:59, "
            f"not {text!r} as in data row {texts.index(text) + 1}."
        ) from None


def _check_calendar(column: str, texts: Sequence[str], period: str) -> None:
    """Refuse numbers where the calendar cuts, but not 20241231, nor years to be cut by year."""
    dates = r"\d{8}|\d{4}" if period == "year" else r"\d{8}"
    each = dict.fromkeys(texts)
    if as_numbers(list(each)) is not None and not all(re.fullmatch(dates, text) for text in each):
        raise EngramError(
            f"period must be equal (--set period=equal) where time is a column of numbers, as "
            f"{column!r} is, not {period!r}."
        )


def _check_filled(setting: str, column: str, texts: Sequence[str]) -> None:
    if "" in texts:
        raise EngramError(
            f"Every row must have a {setting}, and data row {texts.index('') + 1} has nothing in "
            f"column {column!r}."
        )
