"""A figure as data: the page draws it, and so does the printer for papers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from engram.app.paper import Printed
from engram.app.report.names import LEADING, line_name, style_of
from engram.app.report.summary import Summary, count_seeds
from engram.app.runs import Row

Named = tuple[str, Sequence[Row]]  # what notes call some runs


@dataclass(frozen=True)
class Line:
    """A method that figures draw: what it is called and how it looks."""

    method: str
    name: str
    shown: bool  # at first; the reader switches methods on and off
    light: str
    dark: str
    dashes: str
    leading: bool


def method_line(label: str, summary: Summary, shown: bool) -> Line:
    """Return how one line of a table is drawn."""
    leading = summary.method in LEADING and shown
    return Line(summary.method, line_name(label), shown, *style_of(summary.method), leading)


@dataclass(frozen=True)
class Series:
    """One method's numbers in a figure: mean and population standard deviation over its seeds.

    ``line`` is the place of the method in the list that all figures of a section share. A level
    series is one number that holds everywhere. A bar has one point.
    """

    line: int
    mean: list[float | None]  # None: not run there
    std: list[float | None]  # None: not run there, or of one seed, which has no spread
    seeds: int  # the fewest of all points
    level: bool = False
    paper: Printed | None = None
    partial: dict[int, str] = field(default_factory=dict)  # what is said of survivors' points


@dataclass(frozen=True)
class Chart:
    """A figure: lines over the places ``x``, or a bar for each method where there are none."""

    name: str  # in the names of files
    title: str
    kind: Literal["lines", "bars"]
    value: str  # what is measured; a bar's title says it
    digits: int
    series: list[Series]
    over: str = ""  # what the places are
    x: list[str] = field(default_factory=list)
    note: str = ""


def over_seeds(line: int, values: ArrayLike, *, level: bool = False) -> Series:
    """Return a series from one list of points for each seed."""
    points = np.asarray(values, dtype=np.float64)
    std = points.std(0).tolist() if len(points) > 1 else [None] * points.shape[1]
    return Series(line, points.mean(0).tolist(), std, len(points), level)


def finished(rows: Iterable[Row]) -> list[Row]:
    """Return the runs that came to their end."""
    return [row for row in rows if not row.outcome["failure"]]


def survivors(rows: Sequence[Row]) -> str:
    """Return what is said of a number if seeds diverged, or nothing if none did.

    ``2 of 5 seeds, the others diverged``
    """
    total, kept = len(rows), len(finished(rows))
    if kept == total:
        return ""
    if not kept:
        return f"none of {count_seeds(total)}, all diverged" if total > 1 else "its seed diverged"
    rest = "the other" if total - kept == 1 else "the others"
    return f"{kept} of {count_seeds(total)}, {rest} diverged"


def survivors_note(runs: Iterable[Named]) -> str:
    """Return the note of a figure: whose numbers are those of survivors alone."""
    notes = [f"{name}: {text}" for name, rows in runs if (text := survivors(rows))]
    return f"{'; '.join(notes)}." if notes else ""


def with_survivors(chart: Chart, runs: Sequence[Named]) -> Chart:
    """Return a figure of one setting that says which numbers are those of survivors alone.

    ``runs`` has the runs of every line; where all of them diverged the note alone says so.
    """
    series = [
        replace(each, partial=dict.fromkeys(range(len(each.mean)), text))
        if (text := survivors(runs[each.line][1]))
        else each
        for each in chart.series
    ]
    drawn = {each.line for each in series}
    about = [run for place, run in enumerate(runs) if place in drawn or not finished(run[1])]
    return replace(chart, series=series, note=f"{chart.note} {survivors_note(about)}".strip())


def common_device(rows: Iterable[Row]) -> str | None:
    """Return where most runs came to their end: times of two devices are not compared."""
    devices = Counter(row.device for row in finished(rows))
    return devices.most_common(1)[0][0] if devices else None


def on_device(runs: Iterable[Named], device: str | None) -> list[Named]:
    """Return the runs of one device alone."""
    return [(name, [row for row in rows if row.device == device]) for name, rows in runs]


def left_out_note(runs: Iterable[Named], device: str | None) -> str:
    """Return the note of a figure of one device: what ran on another."""
    elsewhere: dict[str, list[str]] = {}
    for name, rows in runs:
        for other in sorted({row.device for row in finished(rows)} - {device}):
            elsewhere.setdefault(other, []).append(name)
    notes = [
        f"Left out, as run on {other}: {', '.join(names)}." for other, names in elsewhere.items()
    ]
    return " ".join(notes)
