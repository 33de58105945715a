"""The sections of the page: figures, a table, and how to make the numbers again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engram.app.report import k2
from engram.app.report.charts import Chart, Line, method_line
from engram.app.report.figures import Sweep, figures, with_projections
from engram.app.report.measures import Metric, Statistic, metrics_for
from engram.app.report.names import (
    in_reading_order,
    is_papers_setting,
    line_name,
    method_name,
    setting_name,
    short_name,
)
from engram.app.report.paper_defaults import PaperDefaults, representatives, was_typed
from engram.app.report.projections import projected_times
from engram.app.report.stand_ins import data_name, short_data
from engram.app.report.summary import (
    Setting,
    Summary,
    failure_message,
    remarks,
    seeds_cell,
)
from engram.app.report.tables import NOTHING, Column, Table, deviations, duration, is_far, spread
from engram.app.runs import Row

_FAR = 2.0  # of the paper's standard deviations: further apart than chance would have it
_RECEIPTS = (
    Column("MB", "cost"),
    Column("seconds", "cost"),
    Column("seeds"),
    Column("device", number=False),
    Column("spec hash", number=False),
)


@dataclass(frozen=True)
class Section:
    """A part of the page; ``slug`` is its place in the page and in the page's data."""

    slug: str
    title: str
    short: str  # in the menu
    lines: list[Line]
    charts: list[Chart]
    note: str = ""
    table: Table | None = None
    sentences: list[str] = field(default_factory=list)  # below the table
    receipts: Table | None = None

    @property
    def wide(self) -> list[Chart]:
        """The figures that are lines."""
        return [chart for chart in self.charts if chart.kind == "lines"]

    @property
    def bars(self) -> list[Chart]:
        """The figures that are bars."""
        return [chart for chart in self.charts if chart.kind == "bars"]

    @property
    def files(self) -> dict[str, list[Chart]]:
        """What is in the files for papers, by their names: all bars are in one."""
        files = {f"{self.slug}-{chart.name}": [chart] for chart in self.wide}
        return {**files, f"{self.slug}-metrics": self.bars} if self.bars else files

    @property
    def has_diamonds(self) -> bool:
        """Whether a number of the paper's is beside a bar."""
        return any(series.paper is not None for chart in self.bars for series in chart.series)

    @property
    def has_survivors(self) -> bool:
        """Whether a bar is that of the seeds that did not diverge."""
        return any(series.partial for chart in self.bars for series in chart.series)

    @property
    def data(self) -> dict[str, Any]:
        """What the page draws the figures from."""
        return {
            "lines": [asdict(line) for line in self.lines],
            "charts": {chart.name: asdict(chart) for chart in self.charts},
        }


def setting_section(
    setting: Setting, everything: Sequence[Summary], defaults: PaperDefaults
) -> Section:
    """Return the section of a setting, of all that is in a store."""
    found = [summary for summary in everything if summary.setting == setting]
    summaries = in_reading_order(found, defaults)
    common, labels = defaults.heading(summaries)
    chosen = representatives(summaries, defaults).values()
    lines = [
        method_line(label, summary, summary in chosen)
        for label, summary in zip(labels, summaries, strict=True)
    ]
    title = setting_name(setting) + common.removeprefix(setting.title)
    charts = figures(summaries, defaults) if setting.split == "training" else []
    stand_in = summaries[0].stand_in
    table = _results_table(title, summaries, defaults)
    sentences = [
        *remarks(summaries),
        *_failures(summaries, defaults),
        *_projected(setting, everything, defaults),
    ]
    receipts = _receipts(summaries, [each.name for each in lines], defaults)
    lines, charts = with_projections(setting, lines, charts)
    return Section(
        setting.slug,
        title,
        short_name(setting),
        lines,
        charts,
        note=f"A stand-in: {stand_in.note}" if stand_in else "",
        table=table,
        sentences=sentences,
        receipts=receipts,
    )


def sweep_section(sweep: Sweep) -> Section:
    """Return the section of figures over several settings."""
    lines = [method_line(summary.method, summary, True) for summary in sweep.summaries]
    return Section(sweep.slug, sweep.title, sweep.short, lines, sweep.charts)


def k2_section(summaries: Sequence[Summary], defaults: PaperDefaults) -> Section | None:
    """Return the section of runs whose steps were recorded, if there are any."""
    found = k2.recorded_k2(summaries)
    if not found:
        return None
    lines = k2.k2_lines(found, defaults)
    table = k2.k2_table([each.name for each in lines], found)
    return Section("k2", k2.TITLE, "k2", lines, k2.k2_charts(found), note=k2.MEANING, table=table)


def _results_table(caption: str, summaries: Sequence[Summary], defaults: PaperDefaults) -> Table:
    """Return a line for each method; the paper's columns only where the paper has numbers."""
    _, labels = defaults.heading(summaries)
    columns, marks = [Column("method", number=False)], dict[tuple[int, int], str]()
    lines = [[line_name(label)] for label in labels]
    for metric in metrics_for(row for summary in summaries for row in summary.rows):
        ours = [summary.statistic(metric.name) for summary in summaries]
        paper = [defaults.printed(summary, metric.name) for summary in summaries]
        best = _best(metric, summaries, ours)
        marks |= {(best, len(columns)): "best"} if best is not None else {}
        for line, number in zip(lines, ours, strict=True):
            line.append(spread(number, metric.digits))
        if not any(paper):
            columns.append(Column(metric.title))
            continue
        group = (Column(_ours(summaries), metric.title), Column("paper", metric.title))
        columns += group
        for line, theirs in zip(lines, paper, strict=True):
            line.append(spread(theirs, metric.digits))
        if summaries[0].stand_in:  # whose heights are not compared
            continue
        for place, pair in enumerate(zip(ours, paper, strict=True)):
            lines[place].append(deviations(*pair))
            marks |= {(place, len(columns)): "far"} if is_far(*pair, _FAR) else {}
        columns.append(Column("Δ/σ", metric.title))
    for line, summary in zip(lines, summaries, strict=True):
        line += _cost_and_receipt(summary)
    return Table(caption, [*columns, *_RECEIPTS], lines, marks)


def _ours(summaries: Sequence[Summary]) -> str:
    """Return what our column is called, in copies of the table too."""
    return "stand-in" if summaries[0].stand_in else "ours"


def _best(
    metric: Metric, summaries: Sequence[Summary], ours: Sequence[Statistic | None]
) -> int | None:
    """Return the place of the best method that learns task after task."""
    sign = -1 if metric.name == "forgetting" else 1
    known = [
        (sign * number.mean, place)
        for place, number in enumerate(ours)
        if number is not None and summaries[place].method != "multi-task"
    ]
    return max(known)[1] if len({value for value, _ in known}) > 1 else None


def _cost_and_receipt(summary: Summary) -> list[str]:
    memory = summary.mean("memory_bytes_in_all")
    return [
        NOTHING if memory is None else f"{memory / 1e6:,.2f}",
        duration(summary.seconds),
        seeds_cell(summary),
        summary.device,
        summary.address,
    ]


def _failures(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[str]:
    """Return a sentence for each method of which seeds diverged."""
    _, labels = defaults.heading(summaries)
    messages = [
        (line_name(label), failure_message(each))
        for label, each in zip(labels, summaries, strict=True)
    ]
    return [f"{name}: {sentence}." for name, sentence in messages if sentence]


def _projected(
    setting: Setting, everything: Sequence[Summary], defaults: PaperDefaults
) -> list[str]:
    """Return a sentence for each method of which only the time of a whole run is known."""
    if not is_papers_setting(setting) or setting.stand_in or setting.split != "training":
        return []
    times = projected_times(setting.benchmark, everything, defaults)
    return [f"{method_name(method)}: {each.message}." for method, each in times.items()]


def _receipts(summaries: Sequence[Summary], names: Sequence[str], defaults: PaperDefaults) -> Table:
    """Return the dates, data, versions and commands of a section's lines."""
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
    return Table("Receipts", [Column(title, number=False) for title in columns], lines)


def _versions(row: Row) -> str:
    return " ".join(f"{name} {version}" for name, version in sorted(row.versions.items()))
