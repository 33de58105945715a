"""The paper's numbers beside ours, part by part, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engram.errors import unknown
from engram.report._claims import judge
from engram.report._definitions import definitions, in_setting
from engram.report._k2 import ORDER, SHARE, fact_values, papers_share, recorded_k2
from engram.report._markdown import escape, markdown_table
from engram.report._measures import METRICS, Statistic
from engram.report._numbers import NOTHING, deviations, duration, spread
from engram.report._paper import printed, printed_methods
from engram.report._quantities import representatives
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.report._verdict import Verdict

_BENCHMARKS = ("permuted-mnist", "split-cifar", "split-cub", "split-awa")
_SWEEPS = {
    "limited-examples": ("200-examples", "400-examples", "600-examples"),
    "many-tasks": ("30-tasks", "50-tasks", "70-tasks"),
}
_SWEPT = ("van", "ewc", "pi", "mas", "rwalk", "prog-nn", "gem", "a-gem", "mer", "mega-i", "mega-ii")
_K2 = ("200-examples", "600-examples", "55000-examples")
_RECEIPTS = ("seeds", "device", "spec hash")
_NOT_RUN = "not run"


def reproduction(part: str, summaries: Sequence[Summary], standard: Standard) -> str:
    """Return a part of the reproduction as Markdown, every line with its receipt.

    A part is a benchmark of the paper's, ``limited-examples``, ``many-tasks``, ``k2``,
    ``claims`` or ``missing``.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    if part in _BENCHMARKS:
        return _benchmark(part, trained, standard)
    if part in _SWEEPS:
        return "\n\n".join(_sweep(name, trained, standard) for name in _SWEEPS[part])
    others = {"k2": _k2, "claims": _claims, "missing": _missing}
    if part not in others:
        raise unknown("part of the reproduction", part, [*_BENCHMARKS, *_SWEEPS, *others])
    return others[part](trained, standard)


def _benchmark(benchmark: str, summaries: Sequence[Summary], standard: Standard) -> str:
    ours = _papers_own(benchmark, summaries, standard)
    tables = []
    for metric in METRICS:
        lines = []
        for method in printed_methods(benchmark):
            paper = printed(benchmark, method, metric.name)
            if paper is None:
                continue
            found = ours.get(method)
            number = None if found is None else found.statistic(metric.name)
            told = _NOT_RUN if found is None else spread(number, metric.digits)
            both = [told, spread(paper, metric.digits), deviations(number, paper)]
            name = method
            if found is not None and found.method != method:
                name = f"{method} (run as {found.method})"
            lines.append([name, *both, *_receipt(found)])
        header = ["method", f"{metric.title}, ours", "paper", "Δ/σ", *_RECEIPTS]
        tables.append(markdown_table(header, lines))
    return "\n\n".join(tables)


def _papers_own(
    benchmark: str, summaries: Sequence[Summary], standard: Standard
) -> Mapping[str, Summary]:
    """Return what was run of each method in the paper's own setting."""
    mine = [
        each
        for each in summaries
        if each.setting.benchmark == benchmark and standard.printed(each, "average_accuracy")
    ]
    found = representatives(mine, standard)
    equal = found.get("mega-i-equal", found.get("er"))  # one method under two names
    return found if equal is None else {**found, "mega-i-equal": equal}


def _sweep(name: str, summaries: Sequence[Summary], standard: Standard) -> str:
    found = representatives(in_setting(summaries, name), standard)
    lines = []
    for method in _SWEPT:
        each = found.get(method)
        if each is None:
            lines.append([method, _NOT_RUN, NOTHING, *_receipt(None)])
        else:
            accuracy = spread(each.statistic("average_accuracy"), 2)
            label = standard.preset_label(each)
            lines.append([label, accuracy, duration(each.seconds), *_receipt(each)])
    header = ["method", "average accuracy %", "seconds", *_RECEIPTS]
    return f"{definitions()['settings'][name]['title']}:\n\n{markdown_table(header, lines)}"


def _k2(summaries: Sequence[Summary], standard: Standard) -> str:
    lines = []
    for name in _K2:
        found = representatives(recorded_k2(in_setting(summaries, name)), standard).get("mega-i")
        title = definitions()["settings"][name]["title"]
        if found is None:
            lines.append([title, _NOT_RUN, *[NOTHING] * 4, *_receipt(None)])
            continue
        shares = [spread(Statistic.over(fact_values(found, fact)), 2) for fact in (SHARE, ORDER)]
        errors = [
            max(fact_values(found, f"cos_theta_{number}_error"), default=None) for number in (1, 2)
        ]
        told = [NOTHING if error is None else f"{error:.1e}" for error in errors]
        paper = spread(papers_share(found), 2)
        lines.append([title, shares[0], paper, shares[1], *told, *_receipt(found)])
    header = ["MEGA-I on", "k2 < 1, %, ours", "paper", "θ1 ≤ θ2, %"]
    header += ["largest error of cos θ1", "of cos θ2", *_RECEIPTS]
    return markdown_table(header, lines)


def _claims(summaries: Sequence[Summary], standard: Standard) -> str:
    lines = []
    for claim in judge(summaries, standard):
        without = sum(part.ours is None for part in claim.parts)
        counts = [claim.count(Verdict.HELD), claim.count(Verdict.NOT_HELD)]
        chance = len(claim.parts) - sum(counts) - without
        lines.append([claim.text, claim.verdict.value, *map(str, [*counts, chance, without])])
    header = ["claim", "mark", "held", "not held", "within chance", "without results"]
    return markdown_table(header, lines, ["text", "text", *["number"] * 4])


def _missing(summaries: Sequence[Summary], standard: Standard) -> str:
    absent = dict[str, list[str]]()
    for benchmark in _BENCHMARKS:
        ours = _papers_own(benchmark, summaries, standard)
        absent[benchmark] = [each for each in printed_methods(benchmark) if each not in ours]
    for name in (name for names in _SWEEPS.values() for name in names):
        found = representatives(in_setting(summaries, name), standard)
        title = definitions()["settings"][name]["title"]
        absent[title] = [method for method in _SWEPT if method not in found]
    for name in _K2:
        if not recorded_k2(in_setting(summaries, name)):
            absent[f"k2, {definitions()['settings'][name]['title']}"] = ["mega-i"]
    items = [f"- {escape(where)}: {', '.join(names)}" for where, names in absent.items() if names]
    return "\n".join(items) if items else "Nothing is missing."


def _receipt(found: Summary | None) -> list[str]:
    if found is None:
        return [NOTHING] * len(_RECEIPTS)
    return [str(len(found.rows)), found.device, found.address]
