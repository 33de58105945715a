"""What is said of one number that a claim is about."""

from __future__ import annotations

import math

from engram.report.names import method_name
from engram.report.tables import NOTHING
from engram.report.verdicts import Part, Verdict

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


def claim_words(part: Part) -> list[str]:
    """Return what, where, claimed, ours, its interval, seeds, the paper's number and the mark."""
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
        seeds_words(part, str(part.ours.seeds)),
    ]


def seeds_words(part: Part, number: str) -> str:
    """Return on how many seeds a number of ours rests, and whose were lost."""
    lost = [
        f"{each.seeds} of {method_name(each.method)}'s {each.of} diverged" for each in part.diverged
    ]
    return "; ".join([number, *lost])


def _mark(part: Part) -> str:
    if part.verdict is Verdict.UNSETTLED:
        return _unsettled(part)
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
