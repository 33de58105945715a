"""Methods that were not run, by what they would hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engram.report._quantities import held_bytes
from engram.report._setting import Setting
from engram.report._sizes import projected_sizes
from engram.report.html._chart import Chart, Line, Series
from engram.report.html._names import is_papers, method_name, style_of

_MEGABYTE = 1e6


def with_projections(
    setting: Setting, lines: Sequence[Line], charts: Sequence[Chart]
) -> tuple[list[Line], list[Chart]]:
    """Return lines and figures, with a bar of memory for each method that has no run there."""
    run = {line.method for line in lines}
    known = projected_sizes(setting.benchmark) if is_papers(setting) else {}
    missing = {method: facts for method, facts in known.items() if method not in run}
    if not missing:
        return list(lines), list(charts)
    more = [
        Line(method, f"{method_name(method)} (projected)", True, *style_of(method), leading=False)
        for method in missing
    ]
    bars = [
        Series(len(lines) + place, [held_bytes(facts) / _MEGABYTE], [None], 0)
        for place, facts in enumerate(missing.values())
    ]
    names = ", ".join(method_name(method) for method in missing)
    note = f"{names}: projected from the size of the network, not run."
    drawn = [
        replace(chart, series=[*chart.series, *bars], note=f"{chart.note} {note}".strip())
        if chart.name == "memory"
        else chart
        for chart in charts
    ]
    return [*lines, *more], drawn
