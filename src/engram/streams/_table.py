"""Streams of one's own table: ``table:PATH``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from engram.data import Columns, ImageSet, read_table
from engram.errors import EngramError, unknown
from engram.models import MLP
from engram.settings import setting
from engram.streams._benchmark import PERCEPTRONS
from engram.streams._own_benchmark import OwnBenchmark, own_benchmark, own_place
from engram.streams._own_stream import OwnStream
from engram.streams._own_tasks import OwnSettings, OwnTasks, checked, held_out
from engram.streams._table_inputs import encode
from engram.streams._table_tasks import by_time, by_value, classes_of

LIKE = "permuted-mnist"
_HIDDEN = 256  # the width of both hidden layers, as in the paper's MLP
_NAMED = 5  # columns, where something is told of many


@dataclass(frozen=True)
class TableSettings(OwnSettings):
    """What a stream of one's own table can be told."""

    target: str = setting("", "the column to predict: classes", place=True)
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
        """Return two hidden layers of 256."""
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
    used = {settings.target, settings.task, settings.time}
    columns = read_table(path, ignore={*_listed(settings.ignore)} - used)
    inputs = _inputs(columns, settings)
    labels, classes = classes_of(settings.target, columns[settings.target])
    tasks = (
        by_value(settings.task, columns[settings.task])
        if settings.task
        else by_time(settings.time, columns[settings.time], settings.period, settings.parts)
    )
    parts = [
        held_out(rows, labels[rows], number, settings.test_share)
        for number, rows in enumerate(tasks.values())
    ]
    categories, most = _listed(settings.categories), settings.most_categories
    made = encode(inputs, categories, parts[0].train, most)
    rows = ImageSet(made.values, labels, made.values, labels, tuple(classes), made.checksum)
    remarks = [
        *_told(path, "missing numbers count as the first task's mean, marked", made.missing),
        *_told(path, "texts that the first task lacks count as one text", made.strangers),
        *_told(
            path,
            f"texts beyond the first task's {most:,} most frequent count as one text; a name that "
            "is another in every row is better left out with --set ignore=…",
            made.rare,
        ),
    ]
    return checked(OwnTasks(rows, parts, list(tasks), remarks), str(path), _remedy(settings))


def _inputs(columns: Columns, settings: TableSettings) -> Columns:
    """Return the columns that are read to predict the target."""
    there = f"the columns are {', '.join(columns)}"
    if not settings.target:
        raise EngramError(f"target must name the column to predict (--set target=…); {there}.")
    if bool(settings.task) == bool(settings.time):
        raise EngramError(
            "task or time, one of them, must name the column that says the task "
            f"(--set task=… or --set time=…); {there}."
        )
    listed = {name: _listed(getattr(settings, name)) for name in ("ignore", "categories")}
    named = {name: [getattr(settings, name)] for name in ("target", "task", "time")} | listed
    for setting_, names in named.items():
        for name in names:
            if name and name not in columns:
                raise unknown(f"column for {setting_} called", name, columns)
    apart = {settings.target, settings.task, settings.time, *listed["ignore"]}
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


def _told(path: Path, what: str, counts: Mapping[str, int]) -> list[str]:
    """Return what is to be told of the columns that have some, if any has."""
    told = [f"{count:,} in {name}" for name, count in counts.items() if count]
    where = ", ".join([*told[:_NAMED], *(["…"] if len(told) > _NAMED else [])])
    return [f"{path}: {what} ({where})."] if told else []


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
