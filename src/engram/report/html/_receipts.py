"""Where the numbers of a setting come from, and the commands that make them."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report.html._element import Markup, element
from engram.report.html._table import show_table
from engram.report.paper_defaults import PaperDefaults, was_typed
from engram.report.stand_ins import data_name, short_data
from engram.report.summary import Summary
from engram.report.tables import Column, Table
from engram.runs import Row


def receipts(summaries: Sequence[Summary], names: Sequence[str], defaults: PaperDefaults) -> Markup:
    """Return the dates, data, versions and commands of a section's lines, closed at first."""
    made = "made by" if all(map(was_typed, summaries)) else "again"
    columns = ("method", "date", "data", "versions", made)
    lines = [
        [
            name,
            summary.dates,
            short_data(data_name(summary.identity)),
            ", ".join(dict.fromkeys(map(_versions, summary.rows))),
            defaults.command(summary),
        ]
        for name, summary in zip(names, summaries, strict=True)
    ]
    table = Table("Receipts", [Column(title, number=False) for title in columns], lines)
    return element("details", element("summary", "Dates, data and commands"), show_table(table))


def _versions(row: Row) -> str:
    return " ".join(f"{name} {version}" for name, version in sorted(row.versions.items()))
