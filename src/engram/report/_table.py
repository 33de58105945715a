"""The table that a terminal shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from engram.paper import Printed
from engram.report._failures import told_seeds
from engram.report._measures import METRICS, Statistic
from engram.report._numbers import duration, spread
from engram.report._standard import Standard
from engram.report._summary import Summary


def results_table(summaries: Sequence[Summary], standard: Standard) -> Table:
    """Return a table of methods in one setting; the paper's numbers where that is its own."""
    title, labels = standard.heading(summaries)
    printed = [standard.printed(summary, "average_accuracy") for summary in summaries]
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("method", overflow="fold")  # it gives way, so that no number does
    for metric in METRICS:
        table.add_column(metric.title, justify="right", min_width=11)
    for column in ("seeds", "seconds", *(["paper %"] if any(printed) else [])):
        table.add_column(column, justify="right")
    for summary, label, paper in zip(summaries, labels, printed, strict=True):
        cells = [
            label,
            *(_tight(summary.statistic(metric.name), metric.digits) for metric in METRICS),
            told_seeds(summary),
            duration(summary.seconds),
            *([_tight(paper, 2)] if any(printed) else []),
        ]
        table.add_row(*map(Text, cells))
    return table


def _tight(number: Statistic | Printed | None, digits: int) -> str:
    return spread(number, digits).replace(" ", "")  # or it would not fit 80 columns
