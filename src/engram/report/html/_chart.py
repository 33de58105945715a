"""A figure as data: the page draws it, and so does the printer for papers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from engram.report._paper import Printed
from engram.report._summary import Summary
from engram.report.html._names import LEADING, line_name, style_of


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


def line(label: str, summary: Summary, shown: bool) -> Line:
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
    std: list[float | None]  # None: not run there, or of one seed, which tells no spread
    seeds: int  # the fewest of all points
    level: bool = False
    paper: Printed | None = None


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
