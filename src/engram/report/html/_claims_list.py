"""The paper's claims on the page, each with its mark and its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engram.report._numbers import NOTHING
from engram.report._verdict import Claim, Part, Verdict
from engram.report.html._element import Markup, element
from engram.report.html._names import method_name
from engram.report.html._table import Column, Table, show_table

_MEASURES = {
    "average_accuracy": ("average accuracy", "points", 2),
    "forgetting": ("forgetting", "", 3),
    "lca_10": ("LCA", "", 3),
    "seconds": ("seconds", "", 1),
    "parameters": ("parameters", "", 0),
    "change_over_tasks": ("change of average accuracy from first to last task", "points", 2),
    "finished": ("share of seeds that finish", "", 2),
    "k2_below_1_percent": ("share of steps with k2 < 1", "points", 2),
}
_COLUMNS = (
    Column("what is claimed", number=False),
    Column("where", number=False),
    Column("claimed"),
    Column("ours"),
    Column("95 % interval"),
    Column("seeds"),
    Column("paper"),
    Column("mark", number=False),
)
_BESIDE = 3  # numbers that stand beside a claim; all are in its table
_CLASSES = {
    Verdict.HELD: "held",
    Verdict.NOT_HELD: "not-held",
    Verdict.UNSETTLED: "open",
    Verdict.OPEN: "open",
}


def claims_list(claims: Sequence[Claim]) -> Markup:
    """Return the claims in the paper's order."""
    return element("ol", [element("li", _claim(claim)) for claim in claims], class_="claims")


def _chip(claim: Claim) -> Markup:
    return element("span", claim.mark, class_=f"chip {_CLASSES[claim.verdict]}")


def _claim(claim: Claim) -> Markup:
    lines = [_line(part) for part in claim.parts]
    marks = {
        (number, len(_COLUMNS) - 1): _CLASSES[part.verdict]
        for number, part in enumerate(claim.parts)
    }
    table = Table(claim.text, _COLUMNS, lines, marks)
    beside = [element("li", _sentence(part)) for part in _decisive(claim)]
    return element(
        "article",
        element("p", _chip(claim), " ", claim.text, class_="claim"),
        element("p", _counts(claim), class_="note"),
        element("ul", beside) if beside else None,
        element("details", element("summary", "All its numbers"), show_table(table)),
    )


def _counts(claim: Claim) -> str:
    counts = {
        "held": claim.count(Verdict.HELD),
        "not held": claim.count(Verdict.NOT_HELD),
        "within chance": claim.count(Verdict.UNSETTLED),
        "without results": claim.count(Verdict.OPEN),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    all_of_them = f"{len(claim.parts)} {'number' if len(claim.parts) == 1 else 'numbers'}"
    missing = f" Missing: {claim.missing}." if claim.missing else ""
    return f"{all_of_them}: {told}.{missing}"


def _decisive(claim: Claim) -> list[Part]:
    """Return the numbers that decide the mark: those against it first, then the closest calls."""
    told = [part for part in claim.parts if part.ours is not None]
    order = [Verdict.NOT_HELD, Verdict.UNSETTLED, Verdict.HELD]
    return sorted(told, key=lambda part: (order.index(part.verdict), _slack(part)))[:_BESIDE]


def _slack(part: Part) -> float:
    assert part.ours is not None
    return min(abs(part.ours.mean - part.above), abs(part.ours.mean - part.below))


def _sentence(part: Part) -> list[object]:
    assert part.ours is not None
    what, where, claimed, ours, interval, seeds, paper, mark = _line(part)
    interval = "" if interval == NOTHING else f"95 % interval {interval}, "
    beside = "" if paper == NOTHING else f"; paper {paper}"
    told = f"{what}, {where}: {ours} ({interval}{seeds} seeds; claimed {claimed}{beside}) "
    return [told, element("span", mark, class_=f"chip {_CLASSES[part.verdict]}")]


def _line(part: Part) -> list[str]:
    title, unit, digits = _MEASURES[part.measure]
    digits = 2 if part.ratio else digits
    of, than = (_called(method) for method in (part.of, part.than or ""))
    pair = of if part.than is None else f"{of} {'/' if part.ratio else '−'} {than}"
    paper = NOTHING if part.paper is None else f"{part.paper:+.{digits}f}"
    return [
        f"{pair}, {title}",
        part.where,
        _range(part),
        *_numbers(part, digits, "times" if part.ratio else unit),
        paper,
        _mark(part),
    ]


def _numbers(part: Part, digits: int, unit: str) -> list[str]:
    if part.ours is None:
        return [NOTHING, NOTHING, NOTHING]
    sign = "" if part.ratio or part.measure == "finished" else "+"
    mean, low, high = (
        f"{number:{sign}.{digits}f}" for number in (part.ours.mean, part.ours.low, part.ours.high)
    )
    settled = math.isfinite(part.ours.low) and low != high
    return [
        f"{mean} {unit}".strip(),
        f"{low} to {high}" if settled else NOTHING,
        str(part.ours.seeds),
    ]


def _mark(part: Part) -> str:
    told = {Verdict.UNSETTLED: "within chance", Verdict.OPEN: part.missing}
    return told.get(part.verdict, part.verdict.value)


def _range(part: Part) -> str:
    if math.isinf(part.below):
        return f"above {part.above:g}"
    if math.isinf(part.above):
        return f"below {part.below:g}"
    return f"{part.above:g} to {part.below:g}"


def _called(method: str) -> str:
    return "median of the baselines" if method == "median" else method_name(method)
