"""The paper's numbers beside ours, part by part, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from engram.errors import unknown
from engram.paper import benchmarks, printed_methods, settings
from engram.report._benchmark_tables import (
    NOT_RUN,
    RECEIPTS,
    benchmark_tables,
    papers_own,
    receipt,
    stand_in_label,
)
from engram.report._claims import judge
from engram.report._definitions import in_setting
from engram.report._k2 import ORDER, SHARE, fact_values, papers_share, recorded_k2
from engram.report._markdown import escape, markdown_table
from engram.report._measures import Statistic
from engram.report._numbers import NOTHING, duration, spread
from engram.report._projected import RULE, projected_times
from engram.report._quantities import representatives
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.report._verdict import Verdict

_SWEEPS = {
    "limited-examples": ("200-examples", "400-examples", "600-examples"),
    "many-tasks": ("30-tasks", "50-tasks", "70-tasks"),
}
_SWEPT = ("van", "ewc", "pi", "mas", "rwalk", "prog-nn", "gem", "a-gem", "mer", "mega-i", "mega-ii")
_K2 = ("200-examples", "600-examples", "55000-examples")


def reproduction(part: str, summaries: Sequence[Summary], standard: Standard) -> str:
    """Return a part of the reproduction as Markdown, every line with its receipt.

    A part is a benchmark of the paper's, ``limited-examples``, ``many-tasks``, ``k2``,
    ``claims`` or ``missing``; ``far`` is made by `far_lines`, as it has links in it.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    if part in benchmarks():
        return benchmark_tables(part, trained, standard)
    if part in _SWEEPS:
        return "\n\n".join(_sweep(name, trained, standard) for name in _SWEEPS[part])
    others = {"k2": _k2, "claims": _claims, "missing": _missing}
    if part not in others:
        known = [*benchmarks(), *_SWEEPS, *others, "far"]
        raise unknown("part of the reproduction", part, known)
    return others[part](trained, standard)


def _sweep(name: str, summaries: Sequence[Summary], standard: Standard) -> str:
    found = representatives(in_setting(summaries, name), standard)
    lines = []
    for method in _SWEPT:
        each = found.get(method)
        if each is None:
            lines.append([method, NOT_RUN, NOTHING, *receipt(None)])
        else:
            accuracy = spread(each.statistic("average_accuracy"), 2)
            label = standard.preset_label(each)
            lines.append([label, accuracy, duration(each.seconds), *receipt(each)])
    header = ["method", "average accuracy %", "seconds", *RECEIPTS]
    return f"{settings()[name]['title']}:\n\n{markdown_table(header, lines)}"


def _k2(summaries: Sequence[Summary], standard: Standard) -> str:
    lines = []
    for name in _K2:
        found = representatives(recorded_k2(in_setting(summaries, name)), standard).get("mega-i")
        title = settings()[name]["title"]
        if found is None:
            lines.append([title, NOT_RUN, *[NOTHING] * 4, *receipt(None)])
            continue
        shares = [spread(Statistic.over(fact_values(found, fact)), 2) for fact in (SHARE, ORDER)]
        errors = [
            max(fact_values(found, f"cos_theta_{number}_error"), default=None) for number in (1, 2)
        ]
        told = [NOTHING if error is None else f"{error:.1e}" for error in errors]
        paper = spread(papers_share(found), 2)
        lines.append([title, shares[0], paper, shares[1], *told, *receipt(found)])
    header = ["MEGA-I on", "k2 < 1, %, ours", "paper", "θ1 ≤ θ2, % of the steps with both"]
    header += ["largest error of cos θ1", "of cos θ2", *RECEIPTS]
    return markdown_table(header, lines)


def _claims(summaries: Sequence[Summary], standard: Standard) -> str:
    lines, stand_ins = [], dict[str, None]()
    for claim in judge(summaries, standard):
        stand_ins |= dict.fromkeys(part.where for part in claim.parts if part.stand_in)
        verdicts = (Verdict.HELD, Verdict.NOT_HELD, Verdict.UNSETTLED, Verdict.OPEN)
        numbers = [str(claim.count(verdict)) for verdict in verdicts]
        lines.append([claim.text, claim.mark, *numbers, claim.missing or NOTHING])
    header = ["claim", "mark", "held", "not held", "within chance", "without results", "missing"]
    table = markdown_table(header, lines, ["text", "text", *["number"] * 4, "text"])
    told = f"\n\nMeasured on stand-ins: {'; '.join(stand_ins)}." if stand_ins else ""
    return f"{table}\n\n{RULE}{told}"


def _missing(summaries: Sequence[Summary], standard: Standard) -> str:
    absent = dict[str, list[str]]()
    for benchmark in benchmarks():
        absent[benchmark] = _lacking(benchmark, summaries, standard)
    for name in (name for names in _SWEEPS.values() for name in names):
        usual = [each.method for each in in_setting(summaries, name) if standard.is_preset(each)]
        title = settings()[name]["title"]
        absent[title] = [method for method in _SWEPT if method not in usual]
    for name in _K2:
        if not recorded_k2(in_setting(summaries, name)):
            absent[f"k2, {settings()[name]['title']}"] = ["mega-i"]
    items = [f"- {escape(where)}: {', '.join(names)}" for where, names in absent.items() if names]
    return "\n".join(items) if items else "Nothing is missing."


def _lacking(benchmark: str, summaries: Sequence[Summary], standard: Standard) -> list[str]:
    """Return the methods that were not run as the paper has it, or that a stand-in alone was."""
    found = papers_own(benchmark, summaries, standard)
    real = [each for each in found if not stand_in_label(each)]
    projected = projected_times(benchmark, summaries, standard)
    held = {method for each in real or found for method in each}
    lacking = [
        f"{method} (projected)" if method in projected else method
        for method in printed_methods(benchmark)
        if method not in held
    ]
    if not found or real:
        return lacking
    labels = ", ".join(stand_in_label(each) for each in found)
    return [f"stand-in only ({labels})", *([f"without {', '.join(lacking)}"] if lacking else [])]
