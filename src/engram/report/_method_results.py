"""A method's results, for the page about it."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report._failures import count_seeds, told_failures
from engram.report._markdown import commands_block, escape, markdown_table
from engram.report._measures import METRICS
from engram.report._numbers import difference, duration, spread
from engram.report._standard import Standard
from engram.report._summary import Summary, by_setting
from engram.report._tuning import best_of_each


def method_results(
    summaries: Sequence[Summary], methods: Sequence[str], standard: Standard, link: str
) -> list[str]:
    """Return what a file of results holds of some methods; ``link`` leads to the page of all."""
    blocks = []
    for setting, beside in by_setting(summaries).items():
        mine = [summary for summary in beside if summary.method in methods]
        where = f"[{setting.title}]({link})"
        if setting.split == "tuning":
            blocks += _searched(mine, standard, where)
            continue
        for label, summary in zip(standard.labels(mine), mine, strict=True):
            blocks += _run(label, summary, standard, where)
    return blocks


def _run(label: str, summary: Summary, standard: Standard, where: str) -> list[str]:
    failures = told_failures(summary)
    all_failed = len(summary.failures) == len(summary.rows)
    told = f": {escape(failures)}." if failures else ":"
    seeds = "1 seed" if len(summary.rows) == 1 else f"{len(summary.rows)} seeds"
    receipt = (
        f"{seeds}, {duration(summary.seconds)} seconds each on {escape(summary.device)}, "
        f"{summary.dates}, address {summary.address}. Again:"
    )
    return [
        f"**{escape(label)}** on {where}{told}",
        *([] if all_failed else [_numbers(summary, standard)]),
        receipt,
        commands_block([standard.command(summary)]),
    ]


def _numbers(summary: Summary, standard: Standard) -> str:
    lines = []
    for metric in METRICS:
        ours, paper = summary.statistic(metric.name), standard.printed(summary, metric.name)
        numbers = [spread(ours, metric.digits), spread(paper, metric.digits)]
        lines.append([metric.title, *numbers, difference(ours, paper, metric.digits)])
    header = ["", "ours", "paper", "difference"]
    if not any(standard.printed(summary, metric.name) for metric in METRICS):
        header, lines = header[:2], [line[:2] for line in lines]
    return markdown_table(header, lines)


def _searched(mine: Sequence[Summary], standard: Standard, where: str) -> list[str]:
    labels = standard.labels(mine)
    best = best_of_each(mine)
    return [
        f"Of the {sum(summary.method == found.method for summary in mine)} settings tried on "
        f"{where}, {count_seeds(len(found.rows))} each, the best was **{escape(label)}**: "
        f"{spread(found.statistic('average_accuracy'), 2)} % (address {found.address})."
        for label, found in zip(labels, mine, strict=True)
        if found in best
    ]
