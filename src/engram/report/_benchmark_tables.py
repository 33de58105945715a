"""A benchmark of the paper's: its numbers beside ours, on the real data and on stand-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engram.paper import printed, printed_methods
from engram.report._data_names import data_name, short_data
from engram.report._failures import told_seeds
from engram.report._markdown import escape, markdown_table
from engram.report._measures import METRICS, Metric
from engram.report._numbers import NOTHING, deviations, spread
from engram.report._order_table import order_of_methods
from engram.report._projected import projected_times
from engram.report._quantities import representatives
from engram.report._standard import Standard
from engram.report._summary import Summary, by_data

RECEIPTS = ("seeds", "device", "spec hash")
NOT_RUN = "not run"


def benchmark_tables(benchmark: str, summaries: Sequence[Summary], standard: Standard) -> str:
    """Return the tables of what was run as the paper has it, apart for each version of the data.

    Only where nothing was run on the real data do stand-ins stand alone.
    """
    found = papers_own(benchmark, summaries, standard)
    blocks = list[str]()
    for alike in found or [{}]:
        blocks += _heading(alike, standard, several=len(found) > 1)
        blocks += [_table(benchmark, metric, alike, standard) for metric in METRICS]
        blocks += order_of_methods(benchmark, alike) if stand_in_label(alike) else []
    blocks += [
        f"{method} on {benchmark}: {escape(each.told)}."
        for method, each in projected_times(benchmark, summaries, standard).items()
    ]
    return "\n\n".join(blocks)


def papers_own(
    benchmark: str, summaries: Sequence[Summary], standard: Standard
) -> list[Mapping[str, Summary]]:
    """Return what was run of each method in the paper's own setting, for each data apart.

    Stand-ins come last.
    """
    mine = [
        each
        for each in summaries
        if each.setting.benchmark == benchmark and standard.printed(each, "average_accuracy")
    ]
    found = list[Mapping[str, Summary]]()
    for alike in by_data(mine):
        chosen = representatives(alike, standard)
        equal = chosen.get("mega-i-equal", chosen.get("er"))  # one method under two names
        found.append(chosen if equal is None else {**chosen, "mega-i-equal": equal})
    return found


def stand_in_label(found: Mapping[str, Summary]) -> str:
    """Return what the results stand in with, or nothing."""
    return next((each.setting.stand_in for each in found.values()), "")


def receipt(found: Summary | None) -> list[str]:
    """Return the cells that say where a line's numbers come from."""
    if found is None:
        return [NOTHING] * len(RECEIPTS)
    return [told_seeds(found), found.device, found.address]


def _heading(found: Mapping[str, Summary], standard: Standard, *, several: bool) -> list[str]:
    if not found:
        return []
    summaries = [*found.values()]
    title, _ = standard.heading(summaries)
    common = title.removeprefix(summaries[0].setting.title)
    stand_in = summaries[0].stand_in
    if stand_in:
        return [f"**Stand-in: {stand_in.label}**{escape(common)}. {escape(stand_in.note)}"]
    data = f", data {short_data(data_name(summaries[0].identity))}" if several else ""
    told = f"{data}{common}".removeprefix(", ")
    return [f"Run with {escape(told)}:"] if told else []


def _table(benchmark: str, metric: Metric, ours: Mapping[str, Summary], standard: Standard) -> str:
    labels = dict(zip(ours, standard.heading([*ours.values()])[1], strict=True)) if ours else {}
    stand_in = stand_in_label(ours)  # whose heights are not compared
    lines = []
    for method in printed_methods(benchmark):
        paper = printed(benchmark, method, metric.name)
        if paper is None:
            continue
        found, label = ours.get(method), labels.get(method, method)
        number = None if found is None else found.statistic(metric.name)
        told = NOT_RUN if found is None else spread(number, metric.digits)
        both = [told, spread(paper, metric.digits)]
        both += [] if stand_in else [deviations(number, paper)]
        if found is not None and found.method != method:
            label = f"{method} (run as {label})"
        lines.append([label, *both, *receipt(found)])
    header = ["method", f"{metric.title}, {'stand-in' if stand_in else 'ours'}", "paper"]
    header += [] if stand_in else ["Δ/σ"]
    return markdown_table([*header, *RECEIPTS], lines)
