"""Drawings by matplotlib: the plot that runs leave behind, and the figures for papers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import metrics
from engram.app.report.charts import Chart, Line, Series
from engram.app.report.measures import accuracy_matrix
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import Summary, set_address
from engram.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart, and a marker for each.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_TITLE_WIDTH = 75  # letters that have room above the plot
_KINDS = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": None}
_WIDTH, _HEIGHT, _BAR = 7.0, 4.2, 0.19  # inches
_LETTERS = 60  # that have room below a figure
_LABEL_WIDTH = 40
_LETTERS_PER_INCH = 15  # of the title


def save_plot(summaries: Sequence[Summary], defaults: PaperDefaults, folder: Path) -> Path | None:
    """Draw a line per method with a band of one standard deviation; return the PNG's path.

    An SVG is saved beside it. The name has the setting and the results drawn, so that no plot
    overwrites one of other results. None if no run has finished.
    """
    finished = [summary for summary in summaries if len(summary.failures) < len(summary.rows)]
    if not finished:
        return None
    figure = _draw_plot(finished, defaults)
    path = folder / f"{finished[0].setting.slug}-{set_address(finished)}.png"
    with whole_file(path) as part:
        figure.savefig(part, dpi=150)
    with whole_file(path.with_suffix(".svg")) as part:
        figure.savefig(part, metadata={"Date": None})
    return path


def save_figure(
    title: str, charts: Sequence[Chart], lines: Sequence[Line], path: Path
) -> list[Path]:
    """Draw charts in one row and save them; ``path`` is that of the files without an ending.

    The same numbers make the same files, byte by byte.
    """
    from matplotlib import rc_context

    saved = []
    with rc_context({"svg.hashsalt": "engram", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure = _draw_figure(title, charts, lines)
        for ending, metadata in _KINDS.items():
            saved.append(path.with_name(f"{path.name}{ending}"))
            with whole_file(saved[-1]) as part:
                figure.savefig(part, dpi=200, metadata=metadata)
    return saved


def _draw_plot(summaries: Sequence[Summary], defaults: PaperDefaults) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    title, labels = defaults.heading(summaries)
    for number, (summary, label) in enumerate(zip(summaries, labels, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        marker = _MARKERS[(number + number // len(_COLOURS)) % len(_MARKERS)]
        wrapped = textwrap.fill(label, _LABEL_WIDTH)  # it takes room from the curves
        _draw_curve(axes, summary, label=wrapped, color=colour, marker=marker)
    axes.set_title(textwrap.fill(title, _TITLE_WIDTH), loc="left")
    axes.set_xlabel("tasks learned")
    axes.set_ylabel("average accuracy on them, %")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _draw_curve(axes: Axes, summary: Summary, color: str, marker: str, label: str) -> None:
    curves = _curves(summary)
    mean, std = curves.mean(0), curves.std(0)
    tasks, line = np.arange(1, len(mean) + 1), "-"
    if np.isnan(mean[:-1]).any():  # joint training is measured at the end alone: a level line
        mean, std = np.full_like(mean, mean[-1]), np.full_like(std, std[-1])
        line, marker = "--", ""
    axes.plot(tasks, mean, line, color=color, marker=marker, markersize=4, label=label)
    axes.fill_between(tasks, mean - std, mean + std, color=color, alpha=0.2, linewidth=0)


def _curves(summary: Summary) -> np.ndarray[Any, np.dtype[np.float64]]:  # [seeds, T], percent
    matrices = [accuracy_matrix(row) for row in summary.rows if not row.outcome["failure"]]
    return 100 * metrics.average_accuracy_over_tasks(matrices)


def _draw_figure(title: str, charts: Sequence[Chart], lines: Sequence[Line]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if charts[0].kind == "lines":
        size = (_WIDTH, _HEIGHT)
    else:
        size = (2.4 * len(charts) + 1.6, 0.9 + _BAR * sum(line.shown for line in lines))
    layout = ConstrainedLayoutEngine()
    figure = Figure(figsize=size, layout=layout)
    FigureCanvasAgg(figure)
    room = round(_LETTERS_PER_INCH * size[0])
    figure.suptitle(textwrap.fill(_plain(title), room), fontsize=9, x=0.01, ha="left")
    notes = dict.fromkeys(chart.note for chart in charts if chart.note)
    if notes:
        note = textwrap.fill(_plain(" ".join(notes)), round(1.6 * room))
        figure.supxlabel(note, fontsize=6, x=0.01, ha="left")
    rows = figure.subplots(1, len(charts), squeeze=False, sharey=charts[0].kind == "bars")
    for axes, chart in zip(rows[0], charts, strict=True):
        shown = [series for series in chart.series if lines[series.line].shown]
        (_draw_lines if chart.kind == "lines" else _draw_bars)(axes, chart, shown, lines)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    layout.execute(figure)
    figure.set_layout_engine(None)  # it holds for all files, and takes as long as drawing them
    return figure


def _draw_lines(axes: Axes, chart: Chart, shown: Sequence[Series], lines: Sequence[Line]) -> None:
    places = range(len(chart.x))
    for series in shown:
        line = lines[series.line]
        mean, std = _numbers(series.mean), _numbers(series.std)
        if series.level:
            mean, std = mean * len(places), std * len(places)
        where = places[: len(mean)]
        low = [max(m - s, min(m, 0)) for m, s in zip(mean, std, strict=True)]  # as on the page
        high = [m + s for m, s in zip(mean, std, strict=True)]
        axes.plot(
            where,
            mean,
            color=line.light,
            linestyle=_linestyle(line),
            linewidth=2.0 if line.leading else 1.2,
            label=textwrap.fill(_plain(line.name), _LABEL_WIDTH),
        )
        partial = [place for place in where if place in series.partial]
        points = [mean[place] for place in partial]
        axes.plot(partial, points, "o", color=line.light, markersize=4, mfc="white")
        axes.fill_between(where, low, high, color=line.light, alpha=0.15, linewidth=0)
    step = math.ceil(sum(len(text) + 1 for text in chart.x) / _LETTERS)
    axes.set_xticks(list(places)[::step], chart.x[::step])
    axes.set_xlabel(chart.over, fontsize=9)
    axes.set_ylabel(chart.value, fontsize=9)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_bars(axes: Axes, chart: Chart, shown: Sequence[Series], lines: Sequence[Line]) -> None:
    rows = [place for place, line in enumerate(lines) if line.shown]
    height = {place: number for number, place in enumerate(rows)}
    for series in shown:
        y, line = height[series.line], lines[series.line]
        filled = "white" if series.partial else line.light
        mean, std = _numbers(series.mean), _numbers(series.std)
        axes.barh(y, mean, xerr=std, color=filled, edgecolor=line.light, height=0.7)
        if series.paper is not None:
            axes.plot([series.paper.mean], [y], "d", color="black", markersize=4, mfc="white")
    axes.set_yticks(range(len(rows)), [_plain(lines[place].name) for place in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(chart.title, fontsize=9, loc="left")
    axes.grid(alpha=0.25, axis="x")


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _linestyle(line: Line) -> object:
    return (0, tuple(float(word) for word in line.dashes.split())) if line.dashes else "-"


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # what stands between two of them would be a formula
