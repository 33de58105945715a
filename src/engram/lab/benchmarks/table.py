"""Streams of one's own table: ``table:PATH``.

Which task a row is of, and of which class; and the numbers that a network reads of its columns,
which depend on the first task alone.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.errors import EngramError, unknown
from engram.lab.benchmarks.own_data import (
    OwnBenchmark,
    OwnSettings,
    OwnStream,
    OwnTasks,
    checked,
    grouped,
    held_out,
    own_benchmark,
    own_place,
    with_values,
)
from engram.lab.benchmarks.split import Numbers
from engram.lab.benchmarks.stream import PERCEPTRONS
from engram.lab.data import Columns, ImageSet, natural, read_table
from engram.lab.networks import MLP
from engram.lab.settings import setting

LIKE = "permuted-mnist"
_HIDDEN = 256  # the width of both hidden layers, as in the paper's MLP
_REMARKED = 5  # columns, where a remark is on many
_WIDEST = 3  # columns that are named, where many have too many texts
_FURTHEST = 10  # deviations: a drifting column must not make the weights diverge
_MOST_WIDTH = 2**16  # columns of 0 and 1, of all columns of texts
_MOST_BYTES = 2**31  # that they take for all rows
_LARGE, _SHIFT = 2.0**480, 600  # numbers whose squares' sum has no float, and binary places off
_PERIODS: dict[str, Callable[[datetime], str]] = {
    "year": lambda time: f"{time.year:04}",
    "quarter": lambda time: f"{time.year:04}-Q{(time.month + 2) // 3}",
    "month": lambda time: f"{time.year:04}-{time.month:02}",
    "week": lambda time: "{:04}-W{:02}".format(*time.isocalendar()),
}

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TableSettings(OwnSettings):
    """Settings of a stream of one's own table."""

    target: str = setting("", "the column to predict: classes, unless target_kind", place=True)
    target_kind: Literal["classes", "labels", "numbers"] = setting(
        "classes",
        "what target holds: classes; labels, each a column of yes and no, with commas between "
        "them; or numbers, one column or several",
        place=True,
    )
    task: str = setting(
        "",
        "the column whose values are the tasks: by number, or else in the order they come in",
        place=True,
    )
    time: str = setting("", "or the column of dates or times to cut into tasks", place=True)
    period: Literal["year", "quarter", "month", "week", "equal"] = setting(
        "equal", "how time is cut: by the calendar, or into equal parts", place=True
    )
    parts: int = setting(5, "how many equal parts", least=1, place=True)
    ignore: str = setting("", "columns to leave out, with commas between them", place=True)
    categories: str = setting("", "columns of numbers that are names in truth", place=True)
    most_categories: int = setting(
        1_000,
        "texts of a column that are told apart, the most frequent of the first task; all others "
        "count as one",
        least=1,
        most=1_000,
        place=True,
    )


class TableStream(OwnStream):
    """Rows of a table for a fully connected network."""

    def network(self) -> MLP:
        """Return two hidden layers of 256, or the network of the file that training starts from."""
        if self._checkpoint is not None:
            return self._checkpoint.mlp(self.features, self.classes)
        return MLP((self.features, _HIDDEN, _HIDDEN, self.classes))


def table_benchmark(path: str) -> OwnBenchmark:
    """Return the benchmark of the table in a file."""
    if not path:
        raise EngramError("table: must be followed by the path of a file, as in table:sales.csv.")
    place = own_place("table", path)
    return own_benchmark(
        "table",
        place.stem,
        TableSettings,
        like=LIKE,
        read=partial(_read, place),
        build=TableStream,
        stacks=PERCEPTRONS,
    )


def _read(path: Path, settings: TableSettings) -> OwnTasks:
    try:
        state = path.stat()
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    return _tasks(path, (state.st_size, state.st_mtime_ns), settings)


@lru_cache(maxsize=4)
def _tasks(path: Path, state: tuple[int, int], settings: TableSettings) -> OwnTasks:  # noqa: ARG001
    """Return the tasks of a file in this state, which is read once."""
    used = {*_targets(settings), settings.task, settings.time}
    columns = read_table(path, ignore={*_listed(settings.ignore)} - used)
    inputs = _inputs(columns, settings)
    labels, classes = np.arange(0), list[str]()
    values: NDArray[np.float64] | None = None
    if settings.target_kind == "classes":
        labels, classes = classes_of(settings.target, columns[settings.target])
    else:
        values = values_of(
            settings.target_kind, {name: columns[name] for name in _targets(settings)}
        )
    tasks = _rows_of_tasks(columns, settings)
    if values is None:
        parts = [
            held_out(rows, labels[rows], number, settings.test_share)
            for number, rows in enumerate(tasks.values())
        ]
    else:
        groups, parts = grouped(
            values, settings.target_kind, [(rows, None) for rows in tasks.values()], settings
        )
    categories, most = _listed(settings.categories), settings.most_categories
    made = encode(inputs, categories, parts[0].train, most)
    rows = ImageSet(made.values, labels, made.values, labels, tuple(classes), made.checksum)
    remarks = [
        *_remark(path, "missing numbers count as the first task's mean, marked", made.missing),
        *_remark(path, "texts that the first task lacks count as one text", made.strangers),
        *_remark(
            path,
            f"texts beyond the first task's {most:,} most frequent count as one text; a name that "
            "is another in every row is better left out with --set ignore=…",
            made.rare,
        ),
    ]
    own = OwnTasks(rows, parts, list(tasks), remarks)
    if values is not None:
        own = with_values(own, values, groups, settings.target_kind, _targets(settings))
    return checked(own, str(path), _remedy(settings))


def _targets(settings: TableSettings) -> list[str]:
    """Return the columns to predict."""
    plural = settings.target_kind != "classes"
    return _listed(settings.target) if plural else [settings.target]


def _rows_of_tasks(columns: Columns, settings: TableSettings) -> dict[str, Numbers]:
    """Return the rows of each task or, without task boundaries, of each part that is measured."""
    if settings.task:
        return by_value(settings.task, columns[settings.task])
    if not settings.time:  # the rows are one stream as they come
        count = len(columns[_targets(settings)[0]])  # columns that are ignored are empty
        return _equal_parts("row", np.arange(count), settings.parts)
    times = columns[settings.time]
    tasks = by_time(settings.time, times, settings.period, settings.parts)
    if settings.boundaries == "none":
        order = _order(settings.time, times)
        tasks = {name: rows[order[rows].argsort(kind="stable")] for name, rows in tasks.items()}
    return tasks


def _inputs(columns: Columns, settings: TableSettings) -> Columns:
    """Return the columns that are read to predict the target."""
    there = f"the columns are {', '.join(columns)}"
    if not any(_targets(settings)):
        raise EngramError(f"target must name the column to predict (--set target=…); {there}.")
    neither = not (settings.task or settings.time)
    if (settings.task and settings.time) or (neither and settings.boundaries == "tasks"):
        raise EngramError(
            "task or time, one of them, must name the column that says the task "
            f"(--set task=… or --set time=…); {there}."
        )
    listed = {name: _listed(getattr(settings, name)) for name in ("ignore", "categories")}
    named = {name: [getattr(settings, name)] for name in ("task", "time")} | listed
    named = {"target": _targets(settings)} | named
    if len(set(named["target"])) < len(named["target"]):
        raise EngramError(f"target must name every column once, not {settings.target!r}.")
    several = settings.target not in columns and {*_listed(settings.target)} <= {*columns}
    if several and settings.target_kind == "classes":
        raise EngramError(
            f"target must be one column for target_kind=classes, not {settings.target!r}; for "
            "several give --set target_kind=labels or numbers."
        )
    for setting_, names in named.items():
        for name in names:
            if name and name not in columns:
                raise unknown(f"column for {setting_} called", name, columns)
    apart = {*_targets(settings), settings.task, settings.time, *listed["ignore"]}
    inputs = {name: texts for name, texts in columns.items() if name not in apart}
    if not inputs:
        raise EngramError(f"No column is left to predict {settings.target!r} from; {there}.")
    return inputs


def _remedy(settings: TableSettings) -> str:
    """Return what to do about a task with too few rows."""
    if settings.task:
        return "join it with another task, or leave its rows out"
    if settings.period == "equal":
        return "take fewer parts (--set parts=…)"
    return "take a longer period, or equal parts (--set period=equal)"


def _remark(path: Path, what: str, counts: Mapping[str, int]) -> list[str]:
    """Return a remark on the columns that have some, if any has."""
    some = [f"{count:,} in {name}" for name, count in counts.items() if count]
    where = ", ".join([*some[:_REMARKED], *(["…"] if len(some) > _REMARKED else [])])
    return [f"{path}: {what} ({where})."] if some else []


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


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
    each = dict.fromkeys(texts)  # so that of several mistakes the first is named
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
            f"values in {len(texts):,} rows: cut it into ranges first, or learn the numbers with "
            "--set target_kind=numbers."
        )
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[text] for text in texts]), names


_YES_NO = {"1": 1, "yes": 1, "true": 1, "0": 0, "no": 0, "false": 0}


def values_of(kind: str, columns: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
    """Return the labels (0 and 1) or the numbers of all rows, [rows, columns]."""
    found = []
    for name, texts in columns.items():
        _check_filled("target", name, texts)
        values = [_number(text) if kind == "numbers" else _label(text) for text in texts]
        if None in values:
            row = values.index(None)
            what = "finite numbers" if kind == "numbers" else "yes and no (or 1 and 0)"
            raise EngramError(
                f"target must be of {what} for target_kind={kind}, and column {name!r} has "
                f"{texts[row]!r} in data row {row + 1}."
            )
        found.append(np.array(values, dtype=np.float64))
    return np.stack(found, axis=1)


def _label(text: str) -> int | None:
    number = _number(text)
    return _YES_NO.get(text.strip().lower() if number is None else f"{number:g}")


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


class Inputs(NamedTuple):
    """The inputs of all rows, and what somebody should know of how they were made."""

    values: Floats  # [rows, features]
    checksum: str  # of the columns as the file has them
    missing: dict[str, int]  # numbers, by column
    strangers: dict[str, int]  # texts that the first task does not have, by column
    rare: dict[str, int]  # texts that it has too many of to tell them apart, by column


def encode(
    columns: Columns, categories: Collection[str], first: Numbers, most_categories: int = 1_000
) -> Inputs:
    """Return a table's inputs; ``first`` are the rows that the first task trains on.

    Numbers are less the mean of those rows, over their deviation, and cut at ten deviations; a
    missing one is the mean, and a column beside it says so. Of texts every one that those rows
    have is a column of 0 and 1, or the ``most_categories`` most frequent of them, as is any other.
    Where that would be too many columns it is refused before they are made.
    """
    digest = hashlib.sha256()
    numbers = dict[str, NDArray[np.float64]]()
    known = dict[str, list[str]]()  # the texts of the first task, the most frequent first
    for name, texts in columns.items():
        found = None if name in categories else _numbers(name, texts)
        digest.update(f"{found is None}\x1e".encode() + "\x1f".join(texts).encode() + b"\x1e")
        if found is not None:
            numbers[name] = found
            continue
        counts = Counter(texts[row] for row in first.tolist())
        known[name] = sorted(counts, key=lambda text: (-counts[text], text))
        if len(counts) > most_categories:  # then other inputs are made of the same texts
            digest.update(f"{most_categories}\x1e".encode())
    rows = len(next(iter(columns.values())))
    _check_width(known, rows, most_categories)
    parts = [
        _standardised(numbers[name], first)
        if name in numbers
        else _places(texts, sorted(known[name][:most_categories]))
        for name, texts in columns.items()
    ]
    return Inputs(
        _joined(parts, rows),
        digest.hexdigest(),
        missing={name: int(np.isnan(values).sum()) for name, values in numbers.items()},
        strangers={name: len(set(columns[name]) - set(texts)) for name, texts in known.items()},
        rare={name: max(len(texts) - most_categories, 0) for name, texts in known.items()},
    )


def _check_width(known: Mapping[str, Sequence[str]], rows: int, most_categories: int) -> None:
    """Refuse more columns of 0 and 1 than a network, or the memory, has room for."""
    counts = {name: len(texts) for name, texts in known.items()}

    def width(most: int) -> int:
        return sum(min(count, most) + 1 for count in counts.values())

    room = min(_MOST_WIDTH, _MOST_BYTES // (4 * rows))
    if width(most_categories) <= room:
        return
    fewer = next((most for most in (500, 200, 100, 50, 20, 10, 5, 2, 1) if width(most) <= room), 0)
    remedy = f"take fewer with --set most_categories={fewer}, or " if fewer else ""
    largest = sorted(counts, key=lambda name: -counts[name])[:_WIDEST]
    named = ", ".join(f"{name!r} with {counts[name]:,}" for name in largest)
    raise EngramError(
        f"The texts would become {width(most_categories):,} columns of 0 and 1, of which {rows:,} "
        f"rows have room for {room:,}: {remedy}leave columns out with --set ignore=…, first of all "
        f"{named}."
    )


def _numbers(name: str, texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Return a column of numbers, NaN where one is missing; None for a column of texts.

    A column is of numbers if most of what is there is: then whatever is not is a mistake.
    """
    values = {text: _number(text) for text in set(texts)}
    wrong = [text for text in texts if text and values[text] is None]
    if 2 * len(wrong) >= sum(map(bool, texts)):
        return None if wrong else np.full(len(texts), np.nan)
    if wrong:
        raise EngramError(
            f"Column {name!r} is of numbers, but data row {texts.index(wrong[0]) + 1} has "
            f"{wrong[0]!r}: correct it, or take the column for texts with "
            f"--set categories={name}."
        )
    return np.array([values[text] for text in texts], dtype=np.float64)  # None becomes NaN


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _standardised(numbers: NDArray[np.float64], first: Numbers) -> Floats:
    missing = np.isnan(numbers)
    known = numbers[first][~missing[first]]
    if np.abs(known).max(initial=0) > _LARGE:
        numbers, known = np.ldexp(numbers, -_SHIFT), np.ldexp(known, -_SHIFT)
    mean, deviation = (known.mean(), known.std()) if len(known) else (0.0, 1.0)
    if len(set(known.tolist())) == 1:  # whose mean may be rounded, and the deviation then not 0
        mean, deviation = known[0], 1.0
    with np.errstate(over="ignore"):  # what is too far away is cut
        scaled = (numbers - mean) / (deviation or 1.0)
    filled = np.where(missing, 0, scaled.clip(-_FURTHEST, _FURTHEST))
    columns = [filled, missing] if missing.any() else [filled]
    return np.stack(columns, axis=1).astype(np.float32)


class _Places(NamedTuple):
    """Which of ``width`` columns of 0 and 1 is 1, row by row."""

    chosen: NDArray[np.int64]
    width: int


def _places(texts: Sequence[str], known: Sequence[str]) -> _Places:
    places = {text: place for place, text in enumerate(known)}
    chosen = np.array([places.get(text, len(known)) for text in texts], dtype=np.int64)
    return _Places(chosen, len(known) + 1)


def _joined(parts: Sequence[Floats | _Places], rows: int) -> Floats:
    """Return all columns side by side; those of 0 and 1 are made nowhere else."""
    widths = [part.width if isinstance(part, _Places) else part.shape[1] for part in parts]
    joined = np.zeros((rows, sum(widths)), dtype=np.float32)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        if isinstance(part, _Places):
            joined[np.arange(rows), start + part.chosen] = 1
        else:
            joined[:, start : start + width] = part
        start += width
    return joined
