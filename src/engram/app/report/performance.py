"""Measured speed: its tables, and the files that keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from engram.app.report.tables import NOTHING, markdown_table
from engram.app.runs import stamp
from engram.files import whole_file

Rows = Sequence[Mapping[str, Any]]


class SpeedColumn(NamedTuple):
    """A column: its heading, and how a row fills it."""

    heading: str
    form: str  # for str.format, with the row's fields
    kind: str = "number"


class SpeedTable(NamedTuple):
    """A table by its title and its columns."""

    title: str
    columns: Sequence[SpeedColumn]


_RANGE = SpeedColumn("blocks", "{lowest:.2f}–{highest:.2f}")


_RUNS = SpeedColumn("runs at once", "{runs}")


_LOOP = (
    SpeedColumn("model, batches", "{model}", "text"),
    SpeedColumn("by", "{interface}", "text"),
    SpeedColumn("step", "{method}", "text"),
    SpeedColumn("ms", "{milliseconds:.2f}"),
    SpeedColumn("beside", "{beside}", "text"),
    SpeedColumn("times as long", "{ratio:.3f}"),
    SpeedColumn("blocks", "{lowest:.3f}–{highest:.3f}"),
    SpeedColumn("at most", "{bound:.2f}"),
    SpeedColumn("peak, MiB", "{mebibytes:.1f}"),
    SpeedColumn("at most", "{mebibytes_bound:.1f}"),
)


SPEED_TABLES: Mapping[str, SpeedTable] = {
    "stacks": SpeedTable(
        "MEGA-II in task 17 of Permuted MNIST",
        (
            SpeedColumn("precision", "{precision}", "text"),
            _RUNS,
            SpeedColumn("µs a step", "{microseconds:.1f}"),
            SpeedColumn("blocks", "{lowest:.1f}–{highest:.1f}"),
            SpeedColumn("µs a run's step", "{each:.2f}"),
            SpeedColumn("products alone, µs", "{products:.1f}"),
            SpeedColumn("their share", "{share:.0%}"),
            SpeedColumn("at most", "{bound}"),
        ),
    ),
    "searches": SpeedTable(
        "All trials of a search as one stack, in task 3 of Permuted MNIST's tuning tasks",
        (
            SpeedColumn("method", "{method}", "text"),
            SpeedColumn("trials", "{trials}"),
            _RUNS,
            SpeedColumn("µs a step", "{microseconds:.1f}"),
            SpeedColumn("blocks", "{lowest:.1f}–{highest:.1f}"),
            SpeedColumn("µs a run's step", "{each:.2f}"),
            SpeedColumn("trial after trial, µs", "{alone:.2f}"),
            SpeedColumn("times as fast", "{ratio:.2f}"),
        ),
    ),
    "captured": SpeedTable(
        "Captured methods in task 17 of Permuted MNIST",
        (
            SpeedColumn("method", "{method}", "text"),
            _RUNS,
            SpeedColumn("µs a step", "{microseconds:.1f}"),
            SpeedColumn("blocks", "{lowest:.1f}–{highest:.1f}"),
            SpeedColumn("times MEGA-II", "{ratio:.2f}"),
            SpeedColumn("at most", "{bound:.2f}"),
        ),
    ),
    "replays": SpeedTable(
        "Several steps to a replay, in task 17 of Permuted MNIST",
        (
            SpeedColumn("method", "{method}", "text"),
            _RUNS,
            SpeedColumn("steps to a replay", "{together}"),
            SpeedColumn("µs a step", "{microseconds:.1f}"),
            SpeedColumn("blocks", "{lowest:.1f}–{highest:.1f}"),
            SpeedColumn("ms to record, each task", "{recording:.1f}"),
            SpeedColumn("chosen", "{chosen}"),
        ),
    ),
    "images": SpeedTable(
        "MEGA-II in task 17, residual networks, images of noise",
        (
            SpeedColumn("benchmark", "{benchmark}", "text"),
            SpeedColumn("precision", "{precision}", "text"),
            _RUNS,
            SpeedColumn("ms a step", "{milliseconds:.2f}"),
            _RANGE,
            SpeedColumn("ms a run's step", "{each:.2f}"),
            SpeedColumn("at most", "{bound:.1f}"),
        ),
    ),
    "kernels": SpeedTable(
        "Steps with and without each family of kernels",
        (
            SpeedColumn("step", "{workload}", "text"),
            SpeedColumn("variant", "{variant}", "text"),
            SpeedColumn("µs a step", "{microseconds:.1f}"),
            SpeedColumn("times as long", "{ratio:.3f}"),
            SpeedColumn("blocks", "{lowest:.3f}–{highest:.3f}"),
        ),
    ),
    "determinism": SpeedTable(
        "MEGA-II with the same bits each time",
        (
            SpeedColumn("benchmark", "{benchmark}", "text"),
            _RUNS,
            SpeedColumn("µs a step", "{microseconds:.1f}"),
            SpeedColumn("deterministic, µs", "{deterministic:.1f}"),
            SpeedColumn("times as long", "{ratio:.2f}"),
        ),
    ),
    "steps": SpeedTable(
        "The library's steps beside plain autograd",
        (
            SpeedColumn("step", "{candidate}", "text"),
            SpeedColumn("ms", "{milliseconds:.2f}"),
            SpeedColumn("beside", "{beside}", "text"),
            SpeedColumn("ms", "{beside_milliseconds:.2f}"),
            SpeedColumn("ratio", "{ratio:.3f}"),
            SpeedColumn("blocks", "{lowest:.3f}–{highest:.3f}"),
            SpeedColumn("at most", "{bound:.2f}"),
        ),
    ),
    "methods": SpeedTable(
        "A step of each method of a benchmark run",
        (
            SpeedColumn("method", "{method}", "text"),
            SpeedColumn("in task", "{task}"),
            SpeedColumn("ms a step", "{milliseconds:.2f}"),
            SpeedColumn("times VAN", "{ratio:.2f}"),
            _RANGE,
            SpeedColumn("at most", "{bound:.2f}"),
            SpeedColumn("times MEGA-II", "{beside_mega:.2f}"),
        ),
    ),
    "networks": SpeedTable(
        "MEGA-II with a module in the place of the network that is written by hand",
        (
            SpeedColumn("network", "{network}", "text"),
            SpeedColumn("precision", "{precision}", "text"),
            SpeedColumn("module, ms a step", "{milliseconds:.3f}"),
            SpeedColumn("by hand, ms", "{beside_milliseconds:.3f}"),
            SpeedColumn("times as long", "{ratio:.2f}"),
            _RANGE,
            SpeedColumn("at most", "{bound:.1f}"),
        ),
    ),
    "loop": SpeedTable("Mixed steps of any model beside plain training", _LOOP),
    "penalties": SpeedTable("A penalty's step in the second task beside the plain step", _LOOP),
    "compiled": SpeedTable("The same of models that torch.compile has compiled", _LOOP),
    "versions": SpeedTable(
        "Steps before and after a change",
        (
            SpeedColumn("step", "{step}", "text"),
            SpeedColumn("ms before", "{before:.3f}"),
            SpeedColumn("ms after", "{after:.3f}"),
            SpeedColumn("times as long", "{ratio:.3f}"),
            SpeedColumn("rounds", "{lowest:.3f}–{highest:.3f}"),
        ),
    ),
    "peers": SpeedTable(
        "Beside Avalanche's A-GEM",
        (
            SpeedColumn("Engram", "{candidate}", "text"),
            SpeedColumn("ms", "{milliseconds:.2f}"),
            SpeedColumn("Avalanche", "{beside}", "text"),
            SpeedColumn("ms", "{beside_milliseconds:.2f}"),
            SpeedColumn("times as fast", "{ratio:.2f}"),
            _RANGE,
            SpeedColumn("at least", "{bound:.2f}"),
        ),
    ),
}


def speed_table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the rows as a terminal shows them."""
    layout = SPEED_TABLES[name]
    table = Table(title=layout.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in layout.columns:
        right = column.kind == "number"
        table.add_column(column.heading, justify="right" if right else "left", no_wrap=right)
    for row in rows:
        table.add_row(*map(Text, _cells(layout, row)))
    return table


def speed_markdown(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a page shows them."""
    layout = SPEED_TABLES[name]
    return markdown_table(
        [column.heading for column in layout.columns],
        [_cells(layout, row) for row in rows],
        [column.kind for column in layout.columns],
    )


def _cells(layout: SpeedTable, row: Mapping[str, Any]) -> list[str]:
    return [_cell(column.form, row) for column in layout.columns]


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


def save_performance(
    path: Path,
    tables: Mapping[str, Rows],
    *,
    device: str,
    command: str,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write tables that were measured just now; ``versions`` are those of others' packages."""
    made = stamp(command, gpu="CUDA" in device)
    made["versions"] |= versions or {}
    content = {"device": device, **made, "tables": tables}
    with whole_file(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
