"""The plot of average accuracy over the tasks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import metrics
from engram.files import whole_file
from engram.report._measures import accuracy_matrix
from engram.report._standard import Standard
from engram.report._summary import Summary, set_address

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart, and a marker for each.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_TITLE_WIDTH = 75  # letters that have room above the plot


def save_plot(summaries: Sequence[Summary], standard: Standard, folder: Path) -> Path | None:
    """Draw a line per method with a band of one standard deviation; return the PNG's path.

    An SVG is saved beside it. The name tells the setting and the results drawn, so that no plot
    overwrites one of other results. None if no run has finished.
    """
    finished = [summary for summary in summaries if len(summary.failures) < len(summary.rows)]
    if not finished:
        return None
    figure = _draw(finished, standard)
    path = folder / f"{finished[0].setting.slug}-{set_address(finished)}.png"
    with whole_file(path) as part:
        figure.savefig(part, dpi=150)
    with whole_file(path.with_suffix(".svg")) as part:
        figure.savefig(part, metadata={"Date": None})
    return path


def _draw(summaries: Sequence[Summary], standard: Standard) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    title, labels = standard.heading(summaries)
    for number, (summary, label) in enumerate(zip(summaries, labels, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        marker = _MARKERS[(number + number // len(_COLOURS)) % len(_MARKERS)]
        _draw_line(axes, summary, label=label, color=colour, marker=marker)
    axes.set_title(textwrap.fill(title, _TITLE_WIDTH), loc="left")
    axes.set_xlabel("tasks learned")
    axes.set_ylabel("average accuracy on them, %")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _draw_line(axes: Axes, summary: Summary, color: str, marker: str, label: str) -> None:
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
