"""Figures over settings: fewer examples in a task, or more tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from engram.report._quantities import quantity, representatives
from engram.report._setting import Setting
from engram.report._standard import Standard
from engram.report._summary import Summary, by_setting
from engram.report.html._chart import Chart, Series, over_seeds
from engram.report.html._names import benchmark_name, in_reading_order

Axis = Literal["examples", "tasks"]
_OVER = {"examples": "examples in each task", "tasks": "tasks"}
_MEASURES = (
    ("accuracy", "Average accuracy", "average_accuracy", "average accuracy, %", 2),
    ("seconds", "Execution time", "seconds", "seconds of a run", 1),
)


class Sweep(NamedTuple):
    """Settings that differ in one number alone, and their figures."""

    title: str
    short: str
    slug: str
    summaries: list[Summary]  # one for each method, whose places the series name
    charts: list[Chart]


def sweeps(summaries: Sequence[Summary], standard: Standard) -> list[Sweep]:
    """Return a sweep for every two or more settings that differ in examples, or in tasks, alone.

    Where there are several methods, at least two of them make a line.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    found = {
        setting: representatives(lines, standard) for setting, lines in by_setting(trained).items()
    }
    groups: dict[tuple[str, Axis, int], list[Setting]] = {}
    for setting in sorted(found):
        groups.setdefault((setting.place, "examples", setting.tasks), []).append(setting)
        groups.setdefault((setting.place, "tasks", setting.examples), []).append(setting)
    return [
        _sweep(axis, sorted(group, key=_along(axis)), found, standard)
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
    standard: Standard,
) -> Sweep:
    first = settings[0]
    rest = f"{first.tasks} tasks" if axis == "examples" else f"{first.examples:,} examples in each"
    methods = {
        method: summary for setting in settings for method, summary in found[setting].items()
    }
    lines = in_reading_order(list(methods.values()), standard)
    places = [f"{getattr(setting, axis):,}" for setting in settings]
    devices = Counter(
        row.device for setting in settings for each in found[setting].values() for row in each.rows
    )
    charts = []
    for name, title, measure, value, digits in _MEASURES:
        device = devices.most_common(1)[0][0] if measure == "seconds" else None
        if device is not None and len(devices) > 1:  # times of two devices do not make a line
            value += f", on {device}"
        series = [
            each
            for line, summary in enumerate(lines)
            if (each := _series(line, summary.method, measure, settings, found, device)) is not None
        ]
        charts.append(
            Chart(name, title, "lines", value, digits, series, over=_OVER[axis], x=places)
        )
    where = benchmark_name(first.benchmark) + first.place.removeprefix(first.benchmark)
    kept = first.tasks if axis == "examples" else first.examples
    slug = first.slug.replace(f"-{first.tasks}x{first.examples}", f"-over-{axis}-{kept}")
    title = f"{where}: over the {_OVER[axis]}, {rest}"
    return Sweep(title, f"Over {_OVER[axis]}", slug, lines, charts)


def _series(
    line: int,
    method: str,
    measure: str,
    settings: Sequence[Setting],
    found: Mapping[Setting, Mapping[str, Summary]],
    device: str | None,
) -> Series | None:
    """Return a method's line; of one device alone where there is one."""
    mean, std, seeds = list[float | None](), list[float | None](), list[int]()
    for setting in settings:
        summary = found[setting].get(method)
        rows = [
            row
            for row in (summary.rows if summary else ())
            if not row.outcome["failure"] and device in (None, row.device)
        ]
        values = [value for row in rows if (value := quantity(row, measure)) is not None]
        point = over_seeds(line, [[value] for value in values]) if values else None
        mean.append(None if point is None else point.mean[0])
        std.append(None if point is None else point.std[0])
        seeds += [] if point is None else [point.seeds]
    return Series(line, mean, std, min(seeds)) if seeds else None


def _along(axis: Axis) -> Callable[[Setting], int]:
    return lambda setting: int(getattr(setting, axis))
