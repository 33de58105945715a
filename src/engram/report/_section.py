"""One setting on a page of results: ours beside the paper's, with receipts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engram.report._chance import told_chance
from engram.report._comparison import across_precisions, comparable, compare, told_test
from engram.report._failures import told_failures, told_seeds
from engram.report._markdown import commands_block, escape, markdown_table
from engram.report._measures import METRICS
from engram.report._numbers import difference, duration, spread
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.report._tuning import searches


class Line(NamedTuple):
    """A method as the tables of a section name it."""

    label: str
    summary: Summary


def section(
    summaries: Sequence[Summary], standard: Standard, pairs: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the blocks of a section, without its heading."""
    labels = standard.labels(summaries)
    lines = [Line(*pair) for pair in zip(labels, summaries, strict=True)]
    commands = dict.fromkeys(command for summary in summaries for command in summary.commands)
    return [
        *([escape(stand_in.note)] if (stand_in := summaries[0].stand_in) else []),
        *_numbers(lines, standard),
        *told_chance(summaries),
        *_best(lines),
        *_failures(lines),
        *_comparisons(lines, pairs, standard),
        _receipts(lines),
        "The runs were made by",
        commands_block(list(commands)),
    ]


def _numbers(lines: Sequence[Line], standard: Standard) -> list[str]:
    """Return a table for each metric the paper has numbers of, and one for all the others.

    So none is too wide for a small screen.
    """
    labels = [line.label for line in lines]
    tables, header, columns = list[str](), ["method"], [labels]
    for metric in METRICS:
        ours = [line.summary.statistic(metric.name) for line in lines]
        paper = [standard.printed(line.summary, metric.name) for line in lines]
        cells = [spread(number, metric.digits) for number in ours]
        if any(paper):
            theirs = [spread(number, metric.digits) for number in paper]
            apart = [difference(*pair, metric.digits) for pair in zip(ours, paper, strict=True)]
            rows = list(zip(labels, cells, theirs, apart, strict=True))
            width = 3 if lines[0].summary.stand_in else 4  # a stand-in's heights are not compared
            head = ["method", metric.title, "paper", "difference"][:width]
            tables.append(markdown_table(head, [row[:width] for row in rows]))
        else:
            header.append(metric.title)
            columns.append(cells)
    rest = [markdown_table(header, list(zip(*columns, strict=True)))] if len(columns) > 1 else []
    return [*tables, *rest]


def _best(lines: Sequence[Line]) -> list[str]:
    found = searches([line.summary for line in lines])
    best = [search.best for search in found if not search.equal]
    named = [escape(line.label) for line in lines if line.summary in best]
    equal = [
        f"Of the settings of {escape(search.best.method)} {search.equal} are equal."
        for search in found
        if search.equal
    ]
    told = f"The best average accuracy without a seed that diverged: {', '.join(named)}."
    return [*([told] if named else []), *equal]


def _failures(lines: Sequence[Line]) -> list[str]:
    told = [(line.label, told_failures(line.summary)) for line in lines]
    items = [f"- {escape(label)}: {escape(failures)}" for label, failures in told if failures]
    return ["\n".join(items)] if items else []


def _comparisons(
    lines: Sequence[Line], pairs: Sequence[tuple[str, str]], standard: Standard
) -> list[str]:
    labels = {line.summary.address: line.label for line in lines}
    summaries = [line.summary for line in lines]
    found = [each for pair in pairs for each in comparable(summaries, pair)]
    compared = [
        [
            f"{labels[one.address]} minus {labels[other.address]}",
            str(result.seeds),
            *told_test(result),
            f"{result.wins} : {result.losses}",
        ]
        for one, other in [*found, *across_precisions(summaries, standard)]
        for result in [compare(one, other)]
    ]
    if not compared:
        return []
    return [
        "Average accuracy seed by seed, in points: the mean and the sample standard deviation of "
        "the differences, the paired t test (two-sided), and how many seeds were won and lost.",
        markdown_table(["pair", "seeds", "mean", "std", "t", "p", "won : lost"], compared),
    ]


def _receipts(lines: Sequence[Line]) -> str:
    rows = [
        [
            line.label,
            told_seeds(line.summary),
            duration(line.summary.seconds),
            line.summary.machine,
            line.summary.dates,
            line.summary.address,
        ]
        for line in lines
    ]
    return markdown_table(["method", "seeds", "seconds", "device", "date", "address"], rows)
