"""The paper's numbers beside ours, part by part, what is far from them and what is missing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from engram.app.paper import Printed, benchmarks, printed, printed_methods, settings
from engram.app.report.claims import Verdict, in_setting, judge
from engram.app.report.k2 import ORDER, SHARE, papers_share, recorded_k2
from engram.app.report.measures import METRICS, Metric, Statistic, measure
from engram.app.report.paper_defaults import PaperDefaults, representatives, value_text
from engram.app.report.projections import TOO_LONG_RULE, projected_times
from engram.app.report.stand_ins import data_name, short_data
from engram.app.report.summary import Summary, by_data, seeds_cell
from engram.app.report.tables import (
    NOTHING,
    deviations,
    duration,
    escape_markdown,
    is_far,
    markdown_table,
    spread,
)
from engram.app.runs import Trial, canonical, select
from engram.errors import unknown
from engram.lab import protocol
from engram.lab.settings import Scalar

_DIGITS = 9  # of a percentage: what differs in later ones alone differs by rounding
_RECEIPTS = ("seeds", "device", "spec hash")
_NOT_RUN = "not run"
_FAR = 3.0  # of the paper's standard deviations
_NEAR = 2.0
_KINDS = (
    "printed",
    "run",
    "on real data",
    "of these without a spread to compare by",
    "within two σ",
    "better",
    "worse",
)
_WHOLE_MNIST = 55_000  # examples of a task
_PAPERS_TASKS = 17
_SEEDS = (3, 5, 10)  # by which a search is judged beside all of its seeds
_PAGES = {"mega-i-equal": "er", "mega-ii-unbalanced": "mega-ii"}  # of what has none of its own
_SWEEPS = {
    "limited-examples": ("200-examples", "400-examples", "600-examples"),
    "many-tasks": ("30-tasks", "50-tasks", "70-tasks"),
}
_SWEPT = ("van", "ewc", "pi", "mas", "rwalk", "prog-nn", "gem", "a-gem", "mer", "mega-i", "mega-ii")
_K2 = ("200-examples", "600-examples", "55000-examples")


def reproduction(part: str, summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return a part of the reproduction as Markdown, every line with its receipt.

    A part is a benchmark of the paper's, ``limited-examples``, ``many-tasks``, ``k2``, ``cells``,
    ``epsilon``, ``searches``, ``time``, ``claims`` or ``missing``; ``far`` is made by `far_lines`,
    as it has links in it.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    if part in benchmarks():
        return _benchmark_tables(part, trained, defaults)
    if part in _SWEEPS:
        return "\n\n".join(_sweep(name, trained, defaults) for name in _SWEEPS[part])
    if part == "epsilon":
        return _epsilon(summaries, defaults)
    if part in ("searches", "time"):
        return _searches(summaries) if part == "searches" else _time(summaries)
    others = {"k2": _k2, "claims": _claims, "missing": _missing, "cells": _cells}
    if part not in others:
        known = [*benchmarks(), *_SWEEPS, *others, "epsilon", "searches", "time", "far"]
        raise unknown("part of the reproduction", part, known)
    return others[part](trained, defaults)


def far_lines(
    summaries: Sequence[Summary], defaults: PaperDefaults, link: Callable[[str], str]
) -> str:
    """Return a list of all |Δ/σ| > 3 in the paper's tables, and of k2's shares that are as far.

    ``link`` leads to a method's page.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    items = [
        f"- {metric.title}, [{method}]({link(_PAGES.get(method, method))}) on {benchmark}: "
        f"{spread(ours, metric.digits)}, paper {spread(paper, metric.digits)} "
        f"({deviations(ours, paper)})"
        for benchmark in benchmarks()
        for found in papers_own(benchmark, trained, defaults)
        for metric in METRICS
        for method in printed_methods(benchmark)
        if method in found and not _stand_in_label(found)
        for ours in [found[method].statistic(metric.name)]
        for paper in [printed(benchmark, method, metric.name)]
        if is_far(ours, paper, _FAR)
    ]
    items += _far_k2(trained, defaults, link)
    return "\n".join(items) if items else "None."


def _far_k2(
    summaries: Sequence[Summary], defaults: PaperDefaults, link: Callable[[str], str]
) -> Iterator[str]:
    """Yield the shares of k2 < 1 that are over three of our deviations from the paper's.

    The paper prints no deviations of them.
    """
    for name in _K2:
        found = representatives(recorded_k2(in_setting(summaries, name)), defaults).get("mega-i")
        paper = None if found is None else papers_share(found)
        if found is None or paper is None:
            continue
        shares = found.values(SHARE)
        ours = Statistic.over(shares)
        if ours is None or ours.std is None or min(shares) <= paper.mean <= max(shares):
            continue
        if abs(ours.mean - paper.mean) > _FAR * ours.std:
            yield (
                f"- share of steps with k2 \\< 1, %, [mega-i]({link('mega-i')}) on "
                f"{settings()[name]['title']}: {spread(ours, 2)}, paper {spread(paper, 2)}"
            )


def _benchmark_tables(benchmark: str, summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return the tables of what was run as the paper has it, apart for each version of the data.

    Only where nothing was run on the real data do stand-ins stand alone.
    """
    found = papers_own(benchmark, summaries, defaults)
    blocks = list[str]()
    for alike in found or [{}]:
        blocks += _heading(alike, defaults, several=len(found) > 1)
        blocks += [_table(benchmark, metric, alike, defaults) for metric in METRICS]
        blocks += _order_of_methods(benchmark, alike) if _stand_in_label(alike) else []
    blocks += [
        f"{method} on {benchmark}: {escape_markdown(each.message)}."
        for method, each in projected_times(benchmark, summaries, defaults).items()
    ]
    return "\n\n".join(blocks)


def _heading(found: Mapping[str, Summary], defaults: PaperDefaults, *, several: bool) -> list[str]:
    if not found:
        return []
    summaries = [*found.values()]
    title, _ = defaults.heading(summaries)
    common = title.removeprefix(summaries[0].setting.title)
    stand_in = summaries[0].stand_in
    if stand_in:
        common, note = escape_markdown(common), escape_markdown(stand_in.note)
        return [f"**Stand-in: {stand_in.label}**{common}. {note}"]
    data = f", data {short_data(data_name(summaries[0].identity))}" if several else ""
    unusual = f"{data}{common}".removeprefix(", ")
    return [f"Run with {escape_markdown(unusual)}:"] if unusual else []


def _table(
    benchmark: str, metric: Metric, ours: Mapping[str, Summary], defaults: PaperDefaults
) -> str:
    labels = dict(zip(ours, defaults.heading([*ours.values()])[1], strict=True)) if ours else {}
    stand_in = _stand_in_label(ours)  # whose heights are not compared
    lines = []
    for method in printed_methods(benchmark):
        paper = printed(benchmark, method, metric.name)
        if paper is None:
            continue
        found, label = ours.get(method), labels.get(method, method)
        number = None if found is None else found.statistic(metric.name)
        text = _NOT_RUN if found is None else spread(number, metric.digits)
        both = [text, spread(paper, metric.digits)]
        both += [] if stand_in else [deviations(number, paper)]
        if found is not None and found.method != method:
            label = f"{method} (run as {label})"
        lines.append([label, *both, *_receipt(found)])
    header = ["method", f"{metric.title}, {'stand-in' if stand_in else 'ours'}", "paper"]
    header += [] if stand_in else ["Δ/σ"]
    return markdown_table([*header, *_RECEIPTS], lines)


def _sweep(name: str, summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    found = representatives(in_setting(summaries, name), defaults)
    lines = []
    for method in _SWEPT:
        each = found.get(method)
        if each is None:
            lines.append([method, _NOT_RUN, NOTHING, *_receipt(None)])
        else:
            accuracy = spread(each.statistic("average_accuracy"), 2)
            label = defaults.preset_label(each)
            lines.append([label, accuracy, duration(each.seconds), *_receipt(each)])
    header = ["method", "average accuracy %", "seconds", *_RECEIPTS]
    return f"{settings()[name]['title']}:\n\n{markdown_table(header, lines)}"


def _k2(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    lines = []
    for name in _K2:
        found = representatives(recorded_k2(in_setting(summaries, name)), defaults).get("mega-i")
        title = settings()[name]["title"]
        if found is None:
            lines.append([title, _NOT_RUN, *[NOTHING] * 4, *_receipt(None)])
            continue
        shares = [spread(Statistic.over(found.values(fact)), 2) for fact in (SHARE, ORDER)]
        errors = [max(found.values(f"cos_theta_{number}_error"), default=None) for number in (1, 2)]
        largest = [NOTHING if error is None else f"{error:.1e}" for error in errors]
        paper = spread(papers_share(found), 2)
        lines.append([title, shares[0], paper, shares[1], *largest, *_receipt(found)])
    header = ["MEGA-I on", "k2 < 1, %, ours", "paper", "θ1 ≤ θ2, % of the steps with both"]
    header += ["largest error of cos θ1", "of cos θ2", *_RECEIPTS]
    return markdown_table(header, lines)


def _claims(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    lines, stand_ins = [], dict[str, None]()
    for claim in judge(summaries, defaults):
        stand_ins |= dict.fromkeys(part.where for part in claim.parts if part.stand_in)
        settled = (Verdict.HELD, Verdict.NOT_HELD, Verdict.NO_DIFFERENCE)
        numbers = [_counted(claim.count(each), claim.count(each, sure=True)) for each in settled]
        others = (Verdict.UNSETTLED, Verdict.NOT_TESTABLE, Verdict.OPEN)
        numbers += [str(claim.count(verdict)) for verdict in others]
        lines.append([claim.text, claim.mark, *numbers, claim.missing or NOTHING])
    header = ["claim", "mark", "held", "not held", "no difference", "within chance"]
    header += ["not testable here", "without results", "missing"]
    table = markdown_table(header, lines, ["text", "text", *["number"] * 6, "text"])
    where = f"\n\nMeasured on stand-ins: {'; '.join(stand_ins)}." if stand_ins else ""
    return f"{table}\n\n{TOO_LONG_RULE}{where}"


def _counted(number: int, sure: int) -> str:
    """Return how many intervals of 95 % say so, and how many after Holm's correction."""
    return f"{number} ({sure})" if number else "0"


def _cells(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return how many of the numbers of the paper's tables were run, and how many are as good."""
    lines = list[list[str]]()
    total = Counter[str]()
    for benchmark in benchmarks():
        found = papers_own(benchmark, summaries, defaults)
        counts = Counter[str]()
        for method in printed_methods(benchmark):
            for metric in METRICS:
                paper = printed(benchmark, method, metric.name)
                if paper is not None:
                    counts.update(_cell(method, metric, paper, found))
        total += counts
        lines.append([benchmark, *(str(counts[kind]) for kind in _KINDS)])
    lines.append(["all", *(str(total[kind]) for kind in _KINDS)])
    return markdown_table(["", *_KINDS], lines)


def _cell(
    method: str, metric: Metric, paper: Printed, found: Sequence[Mapping[str, Summary]]
) -> Iterator[str]:
    """Yield what one number of the paper's counts as, of `_KINDS`."""
    yield "printed"
    mine = [each for each in found if method in each]
    if mine:
        yield "run"
    ours = next(
        (each[method].statistic(metric.name) for each in mine if not _stand_in_label(each)), None
    )
    if ours is None:
        return
    yield "on real data"
    if paper.std is None:
        yield "of these without a spread to compare by"
    elif abs(ours.mean - paper.mean) <= _NEAR * paper.std:
        yield "within two σ"
    else:
        lower = metric.name == "forgetting"
        yield "better" if (ours.mean < paper.mean) is lower else "worse"


def _epsilon(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return every ε that the paper searched on Permuted MNIST: on tuning and on training tasks."""
    mine = [
        each
        for each in summaries
        if (each.setting.benchmark, each.method) == ("permuted-mnist", "mega-i")
        and each.setting.examples == _WHOLE_MNIST
    ]
    tried = {
        each.identity["settings"]["epsilon"]: each
        for each in mine
        if each.setting.split == "tuning"
    }
    trained = {
        each.identity["settings"]["epsilon"]: each
        for each in mine
        if each.setting.split == "training" and _only_epsilon(each, defaults)
    }
    lines = []
    for epsilon in sorted(tried):
        cells = [f"{epsilon:g}"]
        for found in (tried[epsilon], trained.get(epsilon)):
            number = None if found is None else found.statistic("average_accuracy")
            number_text = _NOT_RUN if found is None else spread(number, 2)
            made = NOTHING if found is None else min(row.created for row in found.rows)[:16]
            receipt = [NOTHING] * 2 if found is None else [seeds_cell(found), found.address]
            cells += [number_text, receipt[0], made.replace("T", " "), receipt[1]]
        lines.append(cells)
    header = ["ε", "tuning tasks, %", "seeds", "first made, UTC", "spec hash"]
    return markdown_table([*header, "training tasks, %", *header[2:]], lines)


def _only_epsilon(summary: Summary, defaults: PaperDefaults) -> bool:
    words = defaults.label(summary).split(" ")[1:]
    return summary.setting.tasks == _PAPERS_TASKS and all(
        word.startswith("epsilon=") for word in words
    )


def _searches(summaries: Sequence[Summary]) -> str:
    """Return what the rule chooses of every committed search, by all of its seeds and by fewer."""
    searched: dict[tuple[str, str], list[Summary]] = {}
    for each in summaries:
        if each.setting.split == "tuning":
            searched.setdefault((each.setting.title, each.method), []).append(each)
    lines = []
    for (title, method), tried in searched.items():
        if len(tried) < 2:
            continue
        names = sorted(
            name
            for name in tried[0].identity["settings"]
            if len({canonical(each.identity["settings"][name]) for each in tried}) > 1
        )
        seeds = min(len(each.rows) for each in tried)
        counts = [count for count in _SEEDS if count < seeds] + [seeds]
        found = {count: select(_trials(tried, names, count)) for count in counts}
        usual = _preset_of(tried[0], names)
        best = max(
            (each for each in _trials(tried, names, seeds) if each.score is not None),
            key=lambda each: each.score or 0.0,
        )
        fewer = "; ".join(f"{count}: {_values(found[count])}" for count in counts[:-1])
        cells = [f"{method} on {title}", str(seeds), _values(best), _values(found[seeds])]
        lines.append([*cells, fewer or NOTHING, usual])
    header = ["search", "seeds", "best mean", "by the rule", "by the rule, of fewer seeds"]
    return markdown_table([*header, "preset"], lines, ["text", "number", *["text"] * 4])


def _trials(tried: Sequence[Summary], names: Sequence[str], seeds: int) -> list[Trial]:
    return [
        Trial(
            {name: each.identity["settings"][name] for name in names},
            tuple(measure(row, "average_accuracy") for row in each.rows[:seeds]),
        )
        for each in tried
    ]


def _values(trial: Trial | None) -> str:
    return NOTHING if trial is None else _as_text(trial.settings)


def _as_text(settings: Mapping[str, Scalar]) -> str:
    return " ".join(f"{name}={value_text(value)}" for name, value in settings.items())


def _preset_of(summary: Summary, names: Sequence[str]) -> str:
    spec = protocol.specify(summary.setting.benchmark, summary.method)
    return _as_text({name: spec.settings[name] for name in names})


def _time(summaries: Sequence[Summary]) -> str:
    """Return how long all runs took on each device; runs that train as one stack share its time."""
    taken: dict[tuple[str, str], list[float]] = {}
    for each in summaries:
        for row in each.rows:
            taken.setdefault((row.device, each.setting.split), []).append(row.seconds)
    lines = [
        [device, f"{split} tasks", f"{len(seconds):,}", f"{sum(seconds) / 3600:.1f}"]
        for (device, split), seconds in sorted(taken.items(), reverse=True)
    ]
    return markdown_table(
        ["device", "on", "runs", "hours"], lines, ["text", "text", *["number"] * 2]
    )


def _missing(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    absent = dict[str, list[str]]()
    for benchmark in benchmarks():
        absent[benchmark] = _lacking(benchmark, summaries, defaults)
    for name in (name for names in _SWEEPS.values() for name in names):
        usual = [each.method for each in in_setting(summaries, name) if defaults.is_preset(each)]
        title = settings()[name]["title"]
        absent[title] = [method for method in _SWEPT if method not in usual]
    for name in _K2:
        if not recorded_k2(in_setting(summaries, name)):
            absent[f"k2, {settings()[name]['title']}"] = ["mega-i"]
    items = [
        f"- {escape_markdown(where)}: {', '.join(names)}"
        for where, names in absent.items()
        if names
    ]
    return "\n".join(items) if items else "Nothing is missing."


def _lacking(benchmark: str, summaries: Sequence[Summary], defaults: PaperDefaults) -> list[str]:
    """Return the methods that were not run as the paper has it, or that a stand-in alone was."""
    found = papers_own(benchmark, summaries, defaults)
    real = [each for each in found if not _stand_in_label(each)]
    projected = projected_times(benchmark, summaries, defaults)
    held = {method for each in real or found for method in each}
    lacking = [
        f"{method} (projected)" if method in projected else method
        for method in printed_methods(benchmark)
        if method not in held
    ]
    if not found or real:
        return lacking
    labels = ", ".join(_stand_in_label(each) for each in found)
    return [f"stand-in only ({labels})", *([f"without {', '.join(lacking)}"] if lacking else [])]


def papers_own(
    benchmark: str, summaries: Sequence[Summary], defaults: PaperDefaults
) -> list[Mapping[str, Summary]]:
    """Return what was run of each method in the paper's own setting, for each data apart.

    Stand-ins come last.
    """
    mine = [
        each
        for each in summaries
        if each.setting.benchmark == benchmark and defaults.printed(each, "average_accuracy")
    ]
    found = list[Mapping[str, Summary]]()
    for alike in by_data(mine):
        chosen = representatives(alike, defaults)
        equal = chosen.get("mega-i-equal", chosen.get("er"))  # one method under two names
        found.append(chosen if equal is None else {**chosen, "mega-i-equal": equal})
    return found


def _stand_in_label(found: Mapping[str, Summary]) -> str:
    """Return what the results stand in with, or nothing."""
    return next((each.setting.stand_in for each in found.values()), "")


def _receipt(found: Summary | None) -> list[str]:
    """Return the cells that say where a line's numbers come from."""
    if found is None:
        return [NOTHING] * len(_RECEIPTS)
    return [seeds_cell(found), found.device, found.address]


def _order_of_methods(benchmark: str, found: Mapping[str, Summary]) -> list[str]:
    """Return both orders by average accuracy, and how far they agree."""
    ours, paper = dict[str, float](), dict[str, float]()
    for method in printed_methods(benchmark):
        theirs = printed(benchmark, method, "average_accuracy")
        number = found[method].statistic("average_accuracy") if method in found else None
        if theirs is not None and number is not None:
            ours[method], paper[method] = round(number.mean, _DIGITS), theirs.mean
    correlation = rank_correlation([*ours.values()], [*paper.values()])
    if correlation is None:
        return []
    lines = [["stand-in", ranking(ours)], ["paper", ranking(paper)]]
    runs = len({_measured(found[method]) for method in ours})
    same = f", {runs} distinct runs" if runs < len(ours) else ""
    agreement = f"over {len(ours)} methods{same}: {correlation:.2f}."
    table = markdown_table(["", "by average accuracy, the best first"], lines, ["text", "text"])
    return [table, f"Spearman's rank correlation of both, {agreement}"]


def _measured(summary: Summary) -> str:
    """Return all accuracies: methods that have the same ones took the same steps."""
    return canonical([[row.seed, row.outcome["accuracy"]] for row in summary.rows])


def rank_correlation(ones: Sequence[float], others: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, or None where all of either are equal.

    It is the correlation of the ranks; equal values have the mean of theirs.

    >>> rank_correlation([1, 2, 3], [10, 30, 20])
    0.5
    """
    if min(len(set(ones)), len(set(others))) < 2:
        return None
    return statistics.correlation(_ranks(ones), _ranks(others))


def ranking(values: Mapping[str, float]) -> str:
    """Return names by their values, the largest first, equal ones joined.

    >>> ranking({"van": 30.4, "mega-ii": 54.3, "ewc": 30.4})
    'mega-ii, van = ewc'
    """
    names = dict[float, list[str]]()
    for name in values:
        names.setdefault(values[name], []).append(name)
    return ", ".join(" = ".join(names[value]) for value in sorted(names, reverse=True))


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]
