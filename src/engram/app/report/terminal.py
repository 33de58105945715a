"""Results as the command line shows them: a table, or JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from engram.app.paper import Printed
from engram.app.report.measures import Statistic, metrics_for
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import Summary, seeds_cell
from engram.app.report.tables import duration, spread


def results_table(summaries: Sequence[Summary], defaults: PaperDefaults) -> Table:
    """Return a table of methods in one setting; the paper's numbers where that is its own."""
    title, labels = defaults.heading(summaries)
    printed = [defaults.printed(summary, "average_accuracy") for summary in summaries]
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("method", overflow="fold")  # it gives way, so that no number does
    metrics = metrics_for(row for summary in summaries for row in summary.rows)
    for metric in metrics:
        table.add_column(metric.title, justify="right", min_width=11)
    for column in ("seeds", "seconds", *(["paper %"] if any(printed) else [])):
        table.add_column(column, justify="right")
    for summary, label, paper in zip(summaries, labels, printed, strict=True):
        cells = [
            label,
            *(_tight(summary.statistic(metric.name), metric.digits) for metric in metrics),
            seeds_cell(summary),
            duration(summary.seconds),
            *([_tight(paper, 2)] if any(printed) else []),
        ]
        table.add_row(*map(Text, cells))
    return table


def _tight(number: Statistic | Printed | None, digits: int) -> str:
    return spread(number, digits).replace(" ", "")  # or it would not fit 80 columns


def as_json(summary: Summary) -> dict[str, Any]:
    """Return one entry of ``results``; ``failures`` is there only where a seed has failed."""
    numbers = {metric.name: summary.statistic(metric.name) for metric in metrics_for(summary.rows)}
    entry = {
        "method": summary.method,
        **{
            name: None if number is None else dataclasses.asdict(number)
            for name, number in numbers.items()
        },
        "seeds": len(summary.rows),
        "seconds": summary.seconds,
        "device": summary.device,
    }
    if "network" in summary.identity:
        entry["network"] = summary.identity["network"]
    return {**entry, "failures": summary.failures} if summary.failures else entry
