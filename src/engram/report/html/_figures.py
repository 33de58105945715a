"""The paper's figures for one setting: accuracy over tasks, the first mini-batches, the bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engram import metrics
from engram.report._measures import METRICS, accuracy_matrix
from engram.report._quantities import quantity
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.report.html._chart import Chart, Series, over_seeds
from engram.runs import Row

_BATCHES = 10
_MEGABYTE = 1e6


def figures(summaries: Sequence[Summary], standard: Standard) -> list[Chart]:
    """Return the figures that have anything to show; series name summaries by their place."""
    charts = [_accuracy(summaries), _learning(summaries), *_bars(summaries, standard)]
    return [chart for chart in charts if chart.series]


def _accuracy(summaries: Sequence[Summary]) -> Chart:
    series, tasks = [], summaries[0].setting.tasks
    for place, summary in enumerate(summaries):
        curves = [
            100 * metrics.average_accuracy_over_tasks(accuracy_matrix(row))
            for row in _finished(summary)
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
        curves = [points for row in _finished(summary) if (points := _areas(row))]
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


def _bars(summaries: Sequence[Summary], standard: Standard) -> list[Chart]:
    charts = []
    for metric in METRICS:
        series = _bar_series(summaries, metric.name)
        if not summaries[0].stand_in:  # a stand-in's heights are not compared
            series = [
                replace(bar, paper=standard.printed(summaries[bar.line], metric.name))
                for bar in series
            ]
        charts.append(_bar(metric.name, metric.title, metric.digits, series))
    kept = _bar_series(summaries, "memory_bytes_in_all", _MEGABYTE)
    seconds = _bar_series(summaries, "seconds")
    return [
        *charts,
        _bar("memory", "memory, MB", 2, kept, _memory_note(summaries)),
        _bar("seconds", "seconds of a run", 1, seconds, "As recorded; stacked runs share theirs."),
    ]


def _bar_series(summaries: Sequence[Summary], name: str, unit: float = 1.0) -> list[Series]:
    series = []
    for place, summary in enumerate(summaries):
        values = [
            value / unit for row in _finished(summary) if (value := quantity(row, name)) is not None
        ]
        if values:
            series.append(over_seeds(place, [[value] for value in values]))
    return series


def _bar(name: str, title: str, digits: int, series: list[Series], note: str = "") -> Chart:
    return Chart(
        name.replace("_", "-"), title[:1].upper() + title[1:], "bars", "", digits, series, note=note
    )


def _memory_note(summaries: Sequence[Summary]) -> str:
    rows = [row for summary in summaries for row in summary.rows]
    if all("state_bytes" in row.outcome["facts"] for row in rows):
        return "Parameters, the method's own state and stored examples."
    return "Parameters and stored examples; the state of penalties is added where it was recorded."


def _finished(summary: Summary) -> list[Row]:
    return [row for row in summary.rows if not row.outcome["failure"]]
