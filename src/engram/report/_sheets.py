"""The tables of measured speed: what their columns are called and how numbers are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from engram.report._markdown import markdown_table
from engram.report._numbers import NOTHING


class Column(NamedTuple):
    """A column: its heading, and how a row fills it."""

    heading: str
    form: str  # for str.format, with the row's fields
    kind: str = "number"


class Sheet(NamedTuple):
    """A table by its title and its columns."""

    title: str
    columns: Sequence[Column]


_RANGE = Column("blocks", "{lowest:.2f}–{highest:.2f}")
_RUNS = Column("runs at once", "{runs}")
SHEETS: Mapping[str, Sheet] = {
    "stacks": Sheet(
        "MEGA-II in task 17 of Permuted MNIST",
        (
            Column("precision", "{precision}", "text"),
            _RUNS,
            Column("µs a step", "{microseconds:.1f}"),
            Column("blocks", "{lowest:.1f}–{highest:.1f}"),
            Column("µs a run's step", "{each:.2f}"),
            Column("products alone, µs", "{products:.1f}"),
            Column("their share", "{share:.0%}"),
            Column("at most", "{bound}"),
        ),
    ),
    "searches": Sheet(
        "All trials of a search as one stack, in task 3 of Permuted MNIST's tuning tasks",
        (
            Column("method", "{method}", "text"),
            Column("trials", "{trials}"),
            _RUNS,
            Column("µs a step", "{microseconds:.1f}"),
            Column("blocks", "{lowest:.1f}–{highest:.1f}"),
            Column("µs a run's step", "{each:.2f}"),
            Column("trial after trial, µs", "{alone:.2f}"),
            Column("times as fast", "{ratio:.2f}"),
        ),
    ),
    "captured": Sheet(
        "Captured methods in task 17 of Permuted MNIST",
        (
            Column("method", "{method}", "text"),
            _RUNS,
            Column("µs a step", "{microseconds:.1f}"),
            Column("blocks", "{lowest:.1f}–{highest:.1f}"),
            Column("times MEGA-II", "{ratio:.2f}"),
            Column("at most", "{bound:.2f}"),
        ),
    ),
    "replays": Sheet(
        "Several steps to a replay, in task 17 of Permuted MNIST",
        (
            Column("method", "{method}", "text"),
            _RUNS,
            Column("steps to a replay", "{together}"),
            Column("µs a step", "{microseconds:.1f}"),
            Column("blocks", "{lowest:.1f}–{highest:.1f}"),
            Column("ms to record, each task", "{recording:.1f}"),
            Column("chosen", "{chosen}"),
        ),
    ),
    "images": Sheet(
        "MEGA-II in task 17, residual networks, images of noise",
        (
            Column("benchmark", "{benchmark}", "text"),
            Column("precision", "{precision}", "text"),
            _RUNS,
            Column("ms a step", "{milliseconds:.2f}"),
            _RANGE,
            Column("ms a run's step", "{each:.2f}"),
            Column("at most", "{bound:.1f}"),
        ),
    ),
    "determinism": Sheet(
        "MEGA-II with the same bits each time",
        (
            Column("benchmark", "{benchmark}", "text"),
            _RUNS,
            Column("µs a step", "{microseconds:.1f}"),
            Column("deterministic, µs", "{deterministic:.1f}"),
            Column("times as long", "{ratio:.2f}"),
        ),
    ),
    "steps": Sheet(
        "The library's steps beside plain autograd",
        (
            Column("step", "{candidate}", "text"),
            Column("ms", "{milliseconds:.2f}"),
            Column("beside", "{beside}", "text"),
            Column("ms", "{beside_milliseconds:.2f}"),
            Column("ratio", "{ratio:.3f}"),
            Column("blocks", "{lowest:.3f}–{highest:.3f}"),
            Column("at most", "{bound:.2f}"),
        ),
    ),
    "methods": Sheet(
        "A step of each method of a benchmark run",
        (
            Column("method", "{method}", "text"),
            Column("in task", "{task}"),
            Column("ms a step", "{milliseconds:.2f}"),
            Column("times VAN", "{ratio:.2f}"),
            _RANGE,
            Column("at most", "{bound:.2f}"),
            Column("times MEGA-II", "{beside_mega:.2f}"),
        ),
    ),
    "peers": Sheet(
        "Beside Avalanche's A-GEM",
        (
            Column("Engram", "{candidate}", "text"),
            Column("ms", "{milliseconds:.2f}"),
            Column("Avalanche", "{beside}", "text"),
            Column("ms", "{beside_milliseconds:.2f}"),
            Column("times as fast", "{ratio:.2f}"),
            _RANGE,
            Column("at least", "{bound:.2f}"),
        ),
    ),
}


def sheet_table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the rows as a terminal shows them."""
    sheet = SHEETS[name]
    table = Table(title=sheet.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in sheet.columns:
        right = column.kind == "number"
        table.add_column(column.heading, justify="right" if right else "left", no_wrap=right)
    for row in rows:
        table.add_row(*map(Text, _cells(sheet, row)))
    return table


def sheet_markdown(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a page shows them."""
    sheet = SHEETS[name]
    return markdown_table(
        [column.heading for column in sheet.columns],
        [_cells(sheet, row) for row in rows],
        [column.kind for column in sheet.columns],
    )


def _cells(sheet: Sheet, row: Mapping[str, Any]) -> list[str]:
    return [_cell(column.form, row) for column in sheet.columns]


def _cell(form: str, row: Mapping[str, Any]) -> str:
    """Return a row's cell; nothing where it has no such number.

    >>> _cell("{ratio:.2f}", {"ratio": 1.5}), _cell("{bound:.2f}", {"bound": None})
    ('1.50', '–')
    """
    known = {name: value for name, value in row.items() if value is not None}
    try:
        return form.format(**known)
    except KeyError:
        return NOTHING
