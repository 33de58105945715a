"""The table of one setting: ours, the paper's, what it cost and the receipts."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report.measures import METRICS, Metric, Statistic
from engram.report.names import line_name
from engram.report.paper_defaults import PaperDefaults
from engram.report.summary import Summary, failure_message, seed_count
from engram.report.tables import NOTHING, Column, Table, deviations, duration, is_far, spread

_FAR = 2.0  # of the paper's standard deviations: further apart than chance would have it
_RECEIPTS = (
    Column("MB", "cost"),
    Column("seconds", "cost"),
    Column("seeds"),
    Column("device", number=False),
    Column("spec hash", number=False),
)


def results_table(caption: str, summaries: Sequence[Summary], defaults: PaperDefaults) -> Table:
    """Return a line for each method; the paper's columns only where the paper has numbers."""
    _, labels = defaults.heading(summaries)
    columns, marks = [Column("method", number=False)], dict[tuple[int, int], str]()
    lines = [[line_name(label)] for label in labels]
    for metric in METRICS:
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
        line += _receipt(summary)
    return Table(caption, [*columns, *_RECEIPTS], lines, marks)


def _ours(summaries: Sequence[Summary]) -> str:
    """Return what our column is called, in copies of the table too."""
    return "stand-in" if summaries[0].stand_in else "ours"


def failures(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[str]:
    """Return a sentence for each method of which seeds diverged."""
    _, labels = defaults.heading(summaries)
    told = [
        (line_name(label), failure_message(each))
        for label, each in zip(labels, summaries, strict=True)
    ]
    return [f"{name}: {sentence}." for name, sentence in told if sentence]


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


def _receipt(summary: Summary) -> list[str]:
    memory = summary.mean("memory_bytes_in_all")
    return [
        NOTHING if memory is None else f"{memory / 1e6:,.2f}",
        duration(summary.seconds),
        seed_count(summary),
        summary.device,
        summary.address,
    ]
