"""The paper's claims on the page, each with its mark and its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from engram.app.report.claims import Claim, Part, Verdict
from engram.app.report.names import method_name
from engram.app.report.tables import NOTHING, Column, Table

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
_SETTLED = (Verdict.HELD, Verdict.NOT_HELD, Verdict.NO_DIFFERENCE)
_BESIDE = 3  # numbers that stand beside a claim; all are in its table
_CLASSES = {
    Verdict.HELD: "held",
    Verdict.NOT_HELD: "not-held",
    Verdict.NO_DIFFERENCE: "not-held",
    Verdict.UNSETTLED: "open",
    Verdict.OPEN: "open",
    Verdict.NOT_TESTABLE: "open",
}
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


class Decisive(NamedTuple):
    """A number that decides a claim's mark: what is said of it, its own mark, and its class."""

    sentence: str
    mark: str
    css: str


class ClaimView(NamedTuple):
    """A claim as the page shows it."""

    text: str
    mark: str
    css: str
    counts: str
    decisive: list[Decisive]
    table: Table  # all its numbers


class ClaimsView(NamedTuple):
    """All claims in the paper's order, and how many are held."""

    headline: str
    claims: list[ClaimView]


def claims_view(claims: Sequence[Claim]) -> ClaimsView:
    """Return what the page shows of the claims."""
    counts = [(sum(claim.verdict == verdict for claim in claims), verdict) for verdict in Verdict]
    verdicts = ", ".join(f"{count} {verdict.value}" for count, verdict in counts if count)
    partly = sum(any(part.stand_in for part in claim.parts) for claim in claims)
    stand_ins = f"; {partly} with numbers of stand-ins" if partly else ""
    headline = f"{len(claims)} claims: {verdicts}{stand_ins}."
    return ClaimsView(headline, [_claim_view(claim) for claim in claims])


def _claim_view(claim: Claim) -> ClaimView:
    lines = [_words(part) for part in claim.parts]
    marks = {
        (number, len(_COLUMNS) - 1): _CLASSES[part.verdict]
        for number, part in enumerate(claim.parts)
    }
    return ClaimView(
        claim.text,
        claim.mark,
        _CLASSES[claim.verdict],
        _counts(claim),
        [_decisive(part) for part in _decisive_parts(claim)],
        Table(claim.text, _COLUMNS, lines, marks),
    )


def _counts(claim: Claim) -> str:
    words = {
        Verdict.HELD: "held",
        Verdict.NOT_HELD: "not held",
        Verdict.NO_DIFFERENCE: "no difference",
        Verdict.UNSETTLED: "within chance",
        Verdict.NOT_TESTABLE: "not testable here",
        Verdict.OPEN: "without results",
    }
    counts = [(each, claim.count(each), claim.count(each, sure=True)) for each in words]
    items = [
        f"{count} {words[each]}"
        + (f" ({sure} of them after Holm's correction)" if sure < count else "")
        for each, count, sure in counts
        if count and each in _SETTLED
    ]
    items += [
        f"{count} {words[each]}" for each, count, _ in counts if count and each not in _SETTLED
    ]
    verdicts = ", ".join(items)
    all_of_them = f"{len(claim.parts)} {'number' if len(claim.parts) == 1 else 'numbers'}"
    missing = f" Missing: {claim.missing}." if claim.missing else ""
    return f"{all_of_them}: {verdicts}.{missing}"


def _decisive_parts(claim: Claim) -> list[Part]:
    """Return the numbers that decide the mark: those against it first, then the closest calls."""
    measured = [part for part in claim.parts if part.ours is not None]
    order = [Verdict.NOT_HELD, Verdict.NO_DIFFERENCE, Verdict.UNSETTLED, Verdict.HELD]
    order += [Verdict.NOT_TESTABLE]
    return sorted(measured, key=lambda part: (order.index(part.verdict), _slack(part)))[:_BESIDE]


def _slack(part: Part) -> float:
    assert part.ours is not None
    return min(abs(part.ours.mean - part.above), abs(part.ours.mean - part.below))


def _decisive(part: Part) -> Decisive:
    assert part.ours is not None
    what, where, claimed, ours, interval, _, paper, mark = _words(part)
    interval = "" if interval == NOTHING else f"95 % interval {interval}, "
    beside = "" if paper == NOTHING else f"; paper {paper}"
    seeds = _seeds(part, f"{part.ours.seeds} seeds")
    sentence = f"{what}, {where}: {ours} ({interval}{seeds}; claimed {claimed}{beside})"
    return Decisive(sentence, mark, _CLASSES[part.verdict])


def _words(part: Part) -> list[str]:
    """Return what, where, claimed, ours, its interval, seeds, the paper's number and the mark."""
    title, unit, digits = _MEASURES[part.measure]
    digits = 2 if part.ratio else digits
    of = _called(part.of)
    than = " = ".join(_called(method) for method in (part.than or "", *part.equals))
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
        _seeds(part, str(part.ours.seeds)),
    ]


def _seeds(part: Part, number: str) -> str:
    """Return on how many seeds a number of ours rests, and whose were lost."""
    lost = [
        f"{each.seeds} of {method_name(each.method)}'s {each.of} diverged" for each in part.diverged
    ]
    return "; ".join([number, *lost])


def _mark(part: Part) -> str:
    if part.verdict is Verdict.UNSETTLED:
        return _unsettled(part)
    if part.verdict is Verdict.NO_DIFFERENCE:
        return f"{part.verdict.value} larger than {part.largest:.2f}"
    if part.verdict in _SETTLED and not part.sure:
        return f"{part.verdict.value}, not after Holm's correction"
    return part.missing if part.verdict is Verdict.OPEN else part.verdict.value


def _unsettled(part: Part) -> str:
    """Return what the seeds leave open: whether there is a difference, or how large it is."""
    assert part.ours is not None
    low, high = part.ours.low, part.ours.high
    near = [bound for bound in (part.above, part.below) if low <= bound <= high]
    sized = math.isfinite(low) and (1.0 if part.ratio else 0.0) not in near
    return f"too near {' and '.join(f'{b:g}' for b in near)} to tell" if sized else "within chance"


def _range(part: Part) -> str:
    if math.isinf(part.below):
        return f"above {part.above:g}"
    if math.isinf(part.above):
        return f"below {part.below:g}"
    return f"{part.above:g} to {part.below:g}"


def _called(method: str) -> str:
    return "median of the baselines" if method == "median" else method_name(method)
