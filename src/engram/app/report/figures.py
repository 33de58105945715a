"""The paper's figures for one setting: accuracy over tasks, the first mini-batches, the bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from engram import metrics
from engram.app.report.charts import (
    Chart,
    Line,
    Named,
    Series,
    common_device,
    finished,
    left_out_note,
    on_device,
    over_seeds,
    with_survivors,
)
from engram.app.report.measures import METRICS, accuracy_matrix, held_bytes, quantity
from engram.app.report.names import is_papers_setting, line_name, method_name, style_of
from engram.app.report.paper_defaults import PaperDefaults, representatives
from engram.app.report.projections import projected_sizes
from engram.app.report.summary import Setting, Summary
from engram.app.runs import Row

_BATCHES = 10
_MEGABYTE = 1e6


def figures(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[Chart]:
    """Return the figures that have anything to show; series name summaries by their place."""
    names = [line_name(label) for label in defaults.heading(summaries)[1]]
    chosen = representatives(summaries, defaults).values()
    runs = [  # what diverged altogether is told below the table; here if it speaks for its method
        (name, each.rows if each in chosen or finished(each.rows) else ())
        for name, each in zip(names, summaries, strict=True)
    ]
    charts = [_accuracy(summaries), _learning(summaries), *_bars(summaries, runs, defaults)]
    drawn = [with_survivors(chart, runs) for chart in charts] + [_seconds(runs, chosen)]
    return [chart for chart in drawn if chart.series]


def _accuracy(summaries: Sequence[Summary]) -> Chart:
    series, tasks = [], summaries[0].setting.tasks
    for place, summary in enumerate(summaries):
        curves = [
            100 * metrics.average_accuracy_over_tasks(accuracy_matrix(row))
            for row in finished(summary.rows)
        ]
        if not curves:
            continue
        if np.isnan(curves).any():  # joint training is measured at the end alone
            series.append(over_seeds(place, [[curve[-1]] for curve in curves], level=True))
        else:
            series.append(over_seeds(place, curves))
    return Chart(
        "accuracy",
        "Average accuracy after each task",
        "lines",
        "average accuracy, %",
        2,
        series,
        over="tasks learned",
        x=[str(task) for task in range(1, tasks + 1)],
    )


def _learning(summaries: Sequence[Summary]) -> Chart:
    """LCA_b, the area under the mean learning curve up to mini-batch b, over b; LCA_0 is Z_0."""
    series = []
    for place, summary in enumerate(summaries):
        curves = [points for row in finished(summary.rows) if (points := _areas(row))]
        if curves:
            shortest = min(map(len, curves))
            series.append(over_seeds(place, [points[:shortest] for points in curves]))
    longest = max((len(each.mean) for each in series), default=0)
    return Chart(
        "lca",
        "Learning speed: LCA over the first ten mini-batches",
        "lines",
        "LCA",
        3,
        series,
        over="mini-batches of a new task",
        x=[str(batch) for batch in range(longest)],
    )


def _areas(row: Row) -> list[float]:
    curve = row.outcome["curve"]
    shortest = min(map(len, curve), default=0)
    if shortest == 0:
        return []
    cut = [points[:shortest] for points in curve]
    last = min(_BATCHES, shortest - 1)
    areas = [
        float(metrics.learning_curve_area(cut, "trapezoid", batches))
        for batches in range(1, last + 1)
    ]
    return [float(np.mean(cut, 0)[0]), *areas]


def _bars(
    summaries: Sequence[Summary], runs: Sequence[Named], defaults: PaperDefaults
) -> list[Chart]:
    charts = []
    for metric in METRICS:
        series = _bar_series(runs, metric.name)
        if not summaries[0].stand_in:  # a stand-in's heights are not compared
            series = [
                replace(bar, paper=defaults.printed(summaries[bar.line], metric.name))
                for bar in series
            ]
        charts.append(_bar(metric.name, metric.title, metric.digits, series))
    kept = _bar_series(runs, "memory_bytes_in_all", _MEGABYTE)
    return [*charts, _bar("memory", "memory, MB", 2, kept, _memory_note(runs, kept))]


def _seconds(runs: Sequence[Named], chosen: Iterable[Summary]) -> Chart:
    """Return the bars of the device that is commonest among the lines shown at first."""
    device = common_device(row for each in chosen for row in each.rows)
    there = on_device(runs, device)
    series = _bar_series(there, "seconds")
    note = f"As recorded; stacked runs share theirs. {left_out_note(runs, device)}".strip()
    return with_survivors(_bar("seconds", f"seconds of a run, {device}", 1, series, note), there)


def _bar_series(runs: Sequence[Named], name: str, unit: float = 1.0) -> list[Series]:
    series = []
    for place, (_, rows) in enumerate(runs):
        values = [
            value / unit for row in finished(rows) if (value := quantity(row, name)) is not None
        ]
        if values:
            series.append(over_seeds(place, [[value] for value in values]))
    return series


def _bar(name: str, title: str, digits: int, series: list[Series], note: str = "") -> Chart:
    return Chart(
        name.replace("_", "-"), title[:1].upper() + title[1:], "bars", "", digits, series, note=note
    )


def _memory_note(runs: Sequence[Named], kept: Sequence[Series]) -> str:
    drawn = {bar.line for bar in kept}
    missing = [
        name for line, (name, rows) in enumerate(runs) if line not in drawn and finished(rows)
    ]
    note = "Parameters, the method's own state and stored examples."
    return note + (f" Not recorded: {', '.join(missing)}." if missing else "")


def with_projections(
    setting: Setting, lines: Sequence[Line], charts: Sequence[Chart]
) -> tuple[list[Line], list[Chart]]:
    """Return lines and figures, with a bar of memory for each method that has no run there."""
    run = {line.method for line in lines}
    known = projected_sizes(setting.benchmark) if is_papers_setting(setting) else {}
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
