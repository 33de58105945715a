"""The paper's figures: accuracy over tasks, the first mini-batches, the bars, and over settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple

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
    survivors,
    survivors_note,
    with_survivors,
)
from engram.app.report.measures import METRICS, accuracy_matrix, held_bytes, quantity
from engram.app.report.names import (
    benchmark_name,
    in_reading_order,
    is_papers_setting,
    line_name,
    method_name,
    style_of,
)
from engram.app.report.paper_defaults import PaperDefaults, representatives
from engram.app.report.projections import projected_sizes
from engram.app.report.summary import Setting, Summary, by_setting
from engram.app.runs import Row

_BATCHES = 10
_MEGABYTE = 1e6

Axis = Literal["examples", "tasks"]
_OVER = {"examples": "examples in each task", "tasks": "tasks"}


def figures(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[Chart]:
    """Return the figures that have anything to show; series name summaries by their place."""
    names = [line_name(label) for label in defaults.heading(summaries)[1]]
    chosen = representatives(summaries, defaults).values()
    runs = [  # what diverged altogether is listed below the table; here if it stands for its method
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


class _Measure(NamedTuple):
    name: str
    title: str
    quantity: str
    value: str
    digits: int


_MEASURES = (
    _Measure("accuracy", "Average accuracy", "average_accuracy", "average accuracy, %", 2),
    _Measure("seconds", "Execution time", "seconds", "seconds of a run", 1),
)


class Sweep(NamedTuple):
    """Settings that differ in one number alone, and their figures."""

    title: str
    short: str
    slug: str
    summaries: list[Summary]  # one for each method, whose places the series name
    charts: list[Chart]


def sweeps(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[Sweep]:
    """Return a sweep for every two or more settings that differ in examples, or in tasks, alone.

    Where there are several methods, at least two of them make a line.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    found = {
        setting: representatives(lines, defaults) for setting, lines in by_setting(trained).items()
    }
    groups: dict[tuple[str, Axis, int], list[Setting]] = {}
    for setting in sorted(found):
        groups.setdefault((setting.place, "examples", setting.tasks), []).append(setting)
        groups.setdefault((setting.place, "tasks", setting.examples), []).append(setting)
    return [
        _sweep(axis, sorted(group, key=_along(axis)), found, defaults)
        for (_, axis, _), group in groups.items()
        if len({getattr(setting, axis) for setting in group}) > 1
        and _compares(found[setting] for setting in group)
    ]


def _compares(settings: Iterable[Iterable[str]]) -> bool:
    """Say whether two methods, or the only one, are in several settings."""
    points = Counter(method for methods in settings for method in methods)
    return sum(count > 1 for count in points.values()) >= min(2, len(points))


def _sweep(
    axis: Axis,
    settings: Sequence[Setting],
    found: Mapping[Setting, Mapping[str, Summary]],
    defaults: PaperDefaults,
) -> Sweep:
    first = settings[0]
    rest = f"{first.tasks} tasks" if axis == "examples" else f"{first.examples:,} examples in each"
    methods = {
        method: summary for setting in settings for method, summary in found[setting].items()
    }
    lines = in_reading_order(list(methods.values()), defaults)
    places = [f"{getattr(setting, axis):,}" for setting in settings]
    points = [_points(line.method, axis, settings, found) for line in lines]
    charts = [_chart(measure, points, _OVER[axis], places) for measure in _MEASURES]
    where = benchmark_name(first.benchmark) + first.place.removeprefix(first.benchmark)
    kept = first.tasks if axis == "examples" else first.examples
    slug = first.slug.replace(f"-{first.tasks}x{first.examples}", f"-over-{axis}-{kept}")
    title = f"{where}: over the {_OVER[axis]}, {rest}"
    return Sweep(title, f"Over {_OVER[axis]}", slug, lines, charts)


def _points(
    method: str,
    axis: Axis,
    settings: Sequence[Setting],
    found: Mapping[Setting, Mapping[str, Summary]],
) -> list[Named]:
    """Return a method's runs in every setting, which may be none."""
    name = method_name(method)
    return [
        (
            f"{name} at {getattr(setting, axis):,} {axis}",
            found[setting][method].rows if method in found[setting] else (),
        )
        for setting in settings
    ]


def _chart(measure: _Measure, lines: list[list[Named]], over: str, places: list[str]) -> Chart:
    """Return a figure; of seconds, those of the commonest device alone."""
    value, note, drawn = measure.value, "", lines
    if measure.quantity == "seconds":
        runs = list(chain(*lines))
        device = common_device(row for _, rows in runs for row in rows)
        value, note = f"{value}, on {device}", left_out_note(runs, device)
        drawn = [on_device(points, device) for points in lines]
    series = [_series(line, measure.quantity, points) for line, points in enumerate(drawn)]
    return Chart(
        measure.name,
        measure.title,
        "lines",
        value,
        measure.digits,
        [each for each in series if each is not None],
        over=over,
        x=places,
        note=f"{note} {survivors_note(chain(*drawn))}".strip(),
    )


def _series(line: int, name: str, points: Sequence[Named]) -> Series | None:
    """Return a method's line through its points, if it has any."""
    mean, std, seeds = list[float | None](), list[float | None](), list[int]()
    for _, rows in points:
        values = [value for row in finished(rows) if (value := quantity(row, name)) is not None]
        point = over_seeds(line, [[value] for value in values]) if values else None
        mean.append(None if point is None else point.mean[0])
        std.append(None if point is None else point.std[0])
        seeds += [] if point is None else [point.seeds]
    kept = {place: survivors(rows) for place, (_, rows) in enumerate(points)}
    partial = {place: text for place, text in kept.items() if text and mean[place] is not None}
    return Series(line, mean, std, min(seeds), partial=partial) if seeds else None


def _along(axis: Axis) -> Callable[[Setting], int]:
    return lambda setting: int(getattr(setting, axis))
