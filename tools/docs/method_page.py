"""Blocks of a method's page: its results, and its settings."""

from __future__ import annotations

from collections.abc import Sequence

from engram.app.report.measures import METRICS
from engram.app.report.paper_defaults import PaperDefaults, value_text, was_typed
from engram.app.report.summary import Summary, by_setting, count_seeds, failure_message
from engram.app.report.tables import difference, duration, escape_markdown, markdown_table, spread
from engram.app.runs import Choice
from engram.lab import protocol
from tools.docs.results_page import chosen_values, commands_block, is_of, searches


def method_results(
    summaries: Sequence[Summary],
    methods: Sequence[str],
    defaults: PaperDefaults,
    link: str,
    choices: Sequence[Choice] = (),
    *,
    busy: bool = False,
) -> list[str]:
    """Return what a file of results holds of some methods; ``link`` leads to the page of all.

    ``choices`` are the file's, and a ``busy`` machine is named as such.
    """
    blocks = []
    for setting, beside in by_setting(summaries).items():
        mine = [summary for summary in beside if summary.method in methods]
        where = f"[{setting.title}]({link})"
        if setting.split == "tuning":
            blocks += _searched(mine, defaults, where)
            of_mine = [each for each in choices if each.identity["method"] in methods]
            blocks += [chosen_values(each) for each in of_mine if is_of(each, setting)]
            continue
        for label, summary in zip(defaults.labels(mine), mine, strict=True):
            blocks += _run(label, summary, defaults, where, " beside other runs" * busy)
    return blocks


def _run(
    label: str, summary: Summary, defaults: PaperDefaults, where: str, beside: str
) -> list[str]:
    failures = failure_message(summary)
    all_failed = len(summary.failures) == len(summary.rows)
    ending = f": {escape_markdown(failures)}." if failures else ":"
    seeds = "1 seed" if len(summary.rows) == 1 else f"{len(summary.rows)} seeds"
    where_made = f"{escape_markdown(summary.device)}{beside}"
    receipt = (
        f"{seeds}, {duration(summary.seconds)} seconds each on {where_made}, "
        f"{summary.dates}, address {summary.address}. "
        f"{'Made by' if was_typed(summary) else 'To run it again'}:"
    )
    return [
        f"**{escape_markdown(label)}** on {where}{ending}",
        *([] if all_failed else [_numbers(summary, defaults)]),
        receipt,
        commands_block([defaults.command(summary)]),
    ]


def _numbers(summary: Summary, defaults: PaperDefaults) -> str:
    lines = []
    for metric in METRICS:
        ours, paper = summary.statistic(metric.name), defaults.printed(summary, metric.name)
        numbers = [spread(ours, metric.digits), spread(paper, metric.digits)]
        lines.append([metric.title, *numbers, difference(ours, paper, metric.digits)])
    beside = any(defaults.printed(summary, metric.name) for metric in METRICS)
    width = 2 if not beside else 3 if summary.stand_in else 4  # whose heights are not compared
    header = ["", "stand-in" if summary.stand_in else "ours", "paper", "difference"]
    return markdown_table(header[:width], [line[:width] for line in lines])


def _searched(mine: Sequence[Summary], defaults: PaperDefaults, where: str) -> list[str]:
    labels = defaults.labels(mine)
    sentences = []
    for search in searches(mine):
        best = search.best
        label = escape_markdown(labels[mine.index(best)])
        found = f"{search.equal} are equal" if search.equal else f"the best was **{label}**"
        sentences.append(
            f"Of the {search.tried} settings tried on {where}, {count_seeds(len(best.rows))} each, "
            f"{found}: {spread(best.statistic('average_accuracy'), 2)} % (address {best.address})."
        )
    return sentences


def settings_table(benchmark: str, methods: Sequence[str]) -> str:
    """Return what methods can be told on a benchmark: every setting, its values, its meaning."""
    values: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    for place, method in enumerate(methods):
        for item in protocol.settings_help(benchmark, method):
            cells = values.setdefault(item.name, [""] * len(methods))
            cells[place] = value_text(item.value)
            meanings[item.name] = item.help
    header = methods if len(methods) > 1 else [f"on {benchmark}"]
    return markdown_table(
        ["setting", *header, "meaning"],
        [[name, *values[name], meanings[name]] for name in values],
        ["text", *["number"] * len(methods), "text"],
    )
