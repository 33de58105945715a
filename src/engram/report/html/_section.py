"""One setting on the page: its figures, its table, and how to make the numbers again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from engram.report.charts import Chart, Line, line
from engram.report.figures import figures, with_projections
from engram.report.html._element import Markup, element
from engram.report.html._receipts import receipts
from engram.report.html._results_table import failures, results_table
from engram.report.html._table import show_table
from engram.report.names import (
    in_reading_order,
    is_papers_setting,
    method_name,
    setting_name,
    short_name,
)
from engram.report.paper_defaults import PaperDefaults, representatives
from engram.report.projections import projected_times
from engram.report.summary import Setting, Summary, majority_baseline
from engram.report.sweeps import Sweep
from engram.report.tables import latex_table, markdown_copy

_SYMBOLS = (
    "Whiskers and bands are one standard deviation over the seeds. Methods are switched on and off "
    "above the figures; scales follow what is shown."
)
_DIAMOND = " A diamond is the paper's number."
_HOLLOW = " What is hollow is of the seeds that did not diverge."


class Section(NamedTuple):
    """A part of the page with figures: its place in the page's data, and its HTML."""

    slug: str
    title: str
    short: str
    lines: list[Line]
    charts: list[Chart]
    body: list[Markup]

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
        line(label, summary, summary in chosen)
        for label, summary in zip(labels, summaries, strict=True)
    ]
    title = setting_name(setting) + common.removeprefix(setting.title)
    charts = figures(summaries, defaults) if setting.split == "training" else []
    table = results_table(title, summaries, defaults)
    sentences = [
        *majority_baseline(summaries),
        *failures(summaries, defaults),
        *_projected(setting, everything, defaults),
    ]
    stand_in = summaries[0].stand_in
    body = [
        *([element("p", f"A stand-in: {stand_in.note}", class_="note")] if stand_in else []),
        show_table(table, ("LaTeX", latex_table(table)), ("Markdown", markdown_copy(table))),
        *([element("ul", [element("li", told) for told in sentences])] if sentences else []),
        receipts(summaries, [each.name for each in lines], defaults),
    ]
    lines, charts = with_projections(setting, lines, charts)
    return Section(setting.slug, title, short_name(setting), lines, charts, body)


def _projected(
    setting: Setting, everything: Sequence[Summary], defaults: PaperDefaults
) -> list[str]:
    """Return a sentence for each method of which only the time of a whole run is known."""
    if not is_papers_setting(setting) or setting.stand_in or setting.split != "training":
        return []
    times = projected_times(setting.benchmark, everything, defaults)
    return [f"{method_name(method)}: {each.message}." for method, each in times.items()]


def sweep_section(sweep: Sweep) -> Section:
    """Return the section of figures over several settings."""
    lines = [line(summary.method, summary, True) for summary in sweep.summaries]
    return Section(sweep.slug, sweep.title, sweep.short, lines, sweep.charts, [])


def show_section(section: Section, folder: str) -> Markup:
    """Return a section's HTML; the files of its figures lie in ``folder``, beside the page."""
    wide = [chart for chart in section.charts if chart.kind == "lines"]
    bars = [chart for chart in section.charts if chart.kind == "bars"]
    names = [f"{section.slug}-{chart.name}" for chart in wide] + (
        [f"{section.slug}-metrics"] if bars else []
    )
    charts = [
        element("div", class_="legend", role="group", aria_label="Methods in the figures"),
        element("div", [_figure(section, chart) for chart in wide], class_="figures wide"),
        element(
            "div",
            [_figure(section, chart) for chart in bars],
            element("p", _symbols(bars), class_="note") if bars else None,
            class_="figures bars",
        ),
        element("p", "For papers: ", [_files(folder, name) for name in names], class_="note"),
    ]
    return element(
        "section",
        element("h2", section.title),
        charts if section.charts else None,
        section.body,
        id=section.slug,
        data_section=section.slug,
    )


def _symbols(charts: Sequence[Chart]) -> str:
    drawn = [series for chart in charts for series in chart.series]
    beside = any(series.paper is not None for series in drawn)
    hollow = any(series.partial for series in drawn)
    return _SYMBOLS + (_DIAMOND if beside else "") + (_HOLLOW if hollow else "")


def _figure(section: Section, chart: Chart) -> Markup:
    waiting = element("p", "This figure needs JavaScript; the table has its numbers.")
    return element(
        "figure",
        element("figcaption", chart.title),
        element("div", waiting, class_="plot", data_chart=chart.name),
        element("p", chart.note, class_="note") if chart.note else None,
        aria_label=f"{chart.title}: {section.title}",
    )


def _files(folder: str, name: str) -> list[object]:
    links = [
        element("a", ending.upper(), href=f"{folder}/{name}.{ending}")
        for ending in ("svg", "pdf", "png")
    ]
    return [f"{name} ", links[0], " ", links[1], " ", links[2], ". "]
