"""Figures over settings: fewer examples in a task, or more tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from engram.app.report.charts import (
    Chart,
    Named,
    Series,
    common_device,
    finished,
    left_out_note,
    on_device,
    over_seeds,
    survivors,
    survivors_note,
)
from engram.app.report.measures import quantity
from engram.app.report.names import benchmark_name, in_reading_order, method_name
from engram.app.report.paper_defaults import PaperDefaults, representatives
from engram.app.report.summary import Setting, Summary, by_setting

Axis = Literal["examples", "tasks"]
_OVER = {"examples": "examples in each task", "tasks": "tasks"}


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
