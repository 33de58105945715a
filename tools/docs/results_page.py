"""A page of results in Markdown: ours beside the paper's, with receipts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engram.errors import EngramError
from engram.report._chance import told_chance
from engram.report._comparison import across_precisions, comparable, compare, told_test
from engram.report._failures import told_failures, told_seeds
from engram.report._markdown import commands_block, escape, markdown_table
from engram.report._measures import METRICS
from engram.report._numbers import difference, duration, spread
from engram.report._setting import Setting
from engram.report._standard import Standard
from engram.report._summary import Summary, by_setting, summarise
from engram.runs import Row

_WORDS = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


class Search(NamedTuple):
    """The trials of one method; ``best`` is the first of those with the best average accuracy.

    A trial with a seed that diverged is no candidate.
    """

    best: Summary
    tried: int
    candidates: int
    equals: int  # candidates that have the best accuracy

    @property
    def equal(self) -> str:
        """Which trials are equal, if all candidates are: ``all five``; else nothing."""
        if self.equals < max(self.candidates, 2):
            return ""
        told = "both" if self.equals == 2 else f"all {_WORDS.get(self.equals, self.equals)}"
        return told if self.candidates == self.tried else f"{told} that did not diverge"


def searches(summaries: Iterable[Summary]) -> list[Search]:
    """Return what was found for each method of which more than one setting was tried."""
    tried: dict[str, list[Summary]] = {}
    for summary in summaries:
        if summary.setting.split == "tuning":
            tried.setdefault(summary.method, []).append(summary)
    found = []
    for trials in tried.values():
        candidates = [trial for trial in trials if not trial.failures]
        if len(trials) > 1 and candidates:
            scores = [_score(trial) for trial in candidates]
            best = candidates[scores.index(max(scores))]
            equals = scores.count(max(scores))
            found.append(Search(best, len(trials), len(candidates), equals))
    return found


def _score(summary: Summary) -> float:
    accuracy = summary.statistic("average_accuracy")
    return -1 if accuracy is None else accuracy.mean


class Line(NamedTuple):
    """A method as the tables of a _section name it."""

    label: str
    summary: Summary


def _section(
    summaries: Sequence[Summary], standard: Standard, pairs: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the blocks of a _section, without its heading."""
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
            line.summary.device,
            line.summary.dates,
            line.summary.address,
        ]
        for line in lines
    ]
    return markdown_table(["method", "seeds", "seconds", "device", "date", "address"], rows)


GENERATED = "<!-- Generated: do not edit. -->"
_EXPLANATION = """\
Numbers are mean ± population standard deviation over the seeds: the average accuracy in percent,
forgetting and LCA as fractions. The paper's number stands beside runs of the paper's own setting
only. Seconds are the mean wall-clock time of a run; runs that are stacked on a GPU share theirs.
The address of a result is made of everything that can change it but the device and the versions;
shown are the first ten digits of the sha256 of the addresses of a line's runs, sorted, one to a
line."""


def results_page(
    rows: Iterable[Row], standard: Standard, command: str, pairs: Sequence[tuple[str, str]] = ()
) -> str:
    """Return the page: ours beside the paper's, with receipts, for every setting in the rows.

    ``command`` is what generates the page; ``pairs`` are methods to compare seed by seed.
    """
    sections = by_setting(summarise(rows))
    for pair in pairs:
        if not any(comparable(summaries, pair) for summaries in sections.values()):
            raise EngramError(
                f"No setting in these results has two finished seeds of both {pair[0]!r} and "
                f"{pair[1]!r} in one precision."
            )
    blocks = [
        GENERATED,
        f"# {_title(list(sections))}",
        f"This page is generated by\n\n    {command}",
        _EXPLANATION,
    ]
    for setting, summaries in sections.items():
        blocks += [f"## {setting.title}"] if len(sections) > 1 else []
        blocks += _section(summaries, standard, pairs)
    return "\n\n".join(blocks) + "\n"


def _title(settings: Sequence[Setting]) -> str:
    """Say what a page with these settings is about.

    >>> _title([Setting("permuted-mnist", 20, 200), Setting("permuted-mnist", 20, 600)])
    'Results: permuted-mnist'
    """
    if len(settings) == 1:
        return f"Results: {settings[0].title}"
    return f"Results: {', '.join(dict.fromkeys(setting.place for setting in settings))}"
