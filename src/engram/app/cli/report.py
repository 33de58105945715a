"""``engram report``: the page of all results in a store."""

from __future__ import annotations

from pathlib import Path

from engram.app import report, runs
from engram.app.report import html
from engram.app.terminal import one_line
from engram.lab import protocol


def write_page(store: Path, *, out: Path | None = None) -> None:
    """Write the page, to ``out`` or beside the store, and say where everything is."""
    with runs.Store(store, read_only=True) as opened:
        rows = opened.rows()
    page = store.parent / "report.html" if out is None else out
    figures = html.write_report(rows, report.PaperDefaults(protocol.specify), page)
    print(f"Report: {one_line(page)}")
    if figures is not None:
        print(f"Figures for papers: {one_line(figures)}")
