"""The paper's claims on the page, each with its mark and its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report.html._claim_words import claim_words, seeds_words
from engram.report.html._element import Markup, element
from engram.report.html._table import show_table
from engram.report.tables import NOTHING, Column, Table
from engram.report.verdicts import Claim, Part, Verdict

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
    lines = [claim_words(part) for part in claim.parts]
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
    what, where, claimed, ours, interval, _, paper, mark = claim_words(part)
    interval = "" if interval == NOTHING else f"95 % interval {interval}, "
    beside = "" if paper == NOTHING else f"; paper {paper}"
    seeds = seeds_words(part, f"{part.ours.seeds} seeds")
    told = f"{what}, {where}: {ours} ({interval}{seeds}; claimed {claimed}{beside}) "
    return [told, element("span", mark, class_=f"chip {_CLASSES[part.verdict]}")]
