"""Two methods on the same seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engram.app.report.estimates import Estimate, two_sided_p
from engram.app.report.measures import measure
from engram.app.report.names import method_name, setting_rank
from engram.app.report.paper_defaults import PRECISION, PaperDefaults, representatives
from engram.app.report.stand_ins import data_name
from engram.app.report.summary import Setting, Summary, by_setting
from engram.app.report.tables import NOTHING
from engram.app.runs import canonical
from engram.errors import EngramError

_BASELINES = ("ewc", "pi", "mas", "rwalk", "icarl", "mer", "prog-nn", "gem", "er")
_OPPONENTS = ("a-gem", "van", *_BASELINES)  # the first that was run
OPPONENT_RULE = (
    "MEGA-II is set against A-GEM in the same precision; where that was not run, against VAN, "
    "which is plain training; where neither was, against the first of the other baselines in the "
    "tables' order."
)
_TOO_SHORT = 5.0  # seconds: what a shorter run takes says more of the machine than of the method


@dataclass(frozen=True)
class Comparison:
    """The paired differences, first minus second, of the average accuracy in points.

    ``std`` is the sample standard deviation of the differences and ``t`` is
    mean / (std / sqrt(seeds)), with seeds - 1 degrees of freedom; ``t`` and ``p`` are None where
    all the differences are equal.
    """

    seeds: int
    mean: float
    std: float
    t: float | None
    p: float | None
    wins: int
    losses: int


def compare(first: Summary, second: Summary) -> Comparison:
    """Compare two lines on the seeds that both have finished."""
    found = differences(first, second)
    if len(found) < 2:
        raise EngramError(
            f"{first.method} and {second.method} share {len(found)} finished seeds in "
            f"{first.setting.title}; a comparison takes at least 2."
        )
    mean, std = statistics.fmean(found), statistics.stdev(found)
    t = mean / (std / math.sqrt(len(found))) if std > 0 else None
    return Comparison(
        seeds=len(found),
        mean=mean,
        std=std,
        t=t,
        p=None if t is None else two_sided_p(t, len(found) - 1),
        wins=sum(difference > 0 for difference in found),
        losses=sum(difference < 0 for difference in found),
    )


def t_test_cells(result: Comparison) -> list[str]:
    """Return the mean and the standard deviation of the differences, t and p, as tables do."""
    return [
        f"{result.mean:+.3f}",
        f"{result.std:.3f}",
        NOTHING if result.t is None else f"{result.t:.2f}",
        NOTHING if result.p is None else f"{result.p:.2g}",
    ]


def comparable(
    summaries: Sequence[Summary], pair: tuple[str, str]
) -> list[tuple[Summary, Summary]]:
    """Return what a pair of names stands for in one setting, on the same data.

    Both are in the same precision, and there are seeds to compare.
    """
    ones, others = ([summary for summary in summaries if summary.method == name] for name in pair)
    return [
        (one, other)
        for one in ones
        for other in others
        if data_name(one.identity) == data_name(other.identity)
        and precision(one) == precision(other)
        and one.identity.get("network") == other.identity.get("network")
        and len(differences(one, other)) >= 2
    ]


def across_precisions(
    summaries: Sequence[Summary], defaults: PaperDefaults
) -> list[tuple[Summary, Summary]]:
    """Return the lines that differ in precision alone, where there are seeds to compare.

    The second of a pair is in the usual precision or, where none is, in the one met first.
    """
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        settings = {**summary.identity["settings"], PRECISION: None}
        groups.setdefault(canonical({**summary.identity, "settings": settings}), []).append(summary)
    ordered = [sorted(group, key=defaults.distance) for group in groups.values()]
    return [
        (other, first)
        for first, *others in ordered
        for other in others
        if len(differences(other, first)) >= 2
    ]


def across_networks(summaries: Sequence[Summary]) -> list[tuple[Summary, Summary]]:
    """Return the lines with a network of somebody's own, each with that of the benchmark's own.

    A pair differs in nothing else, and has seeds to compare.
    """
    usual = {canonical(each.identity): each for each in summaries if "network" not in each.identity}
    pairs = []
    for summary in summaries:
        rest = {key: value for key, value in summary.identity.items() if key != "network"}
        other = usual.get(canonical(rest))
        if other not in (None, summary) and len(differences(summary, other)) >= 2:
            pairs.append((summary, other))
    return pairs


def precision(summary: Summary) -> object:
    """Return the precision that some runs were given; None is the usual one."""
    return summary.identity["settings"].get(PRECISION)


def differences(first: Summary, second: Summary) -> list[float]:
    """Return the first's average accuracy less the other's in points, for each seed of both."""
    others = {row.seed: measure(row, "average_accuracy") for row in second.rows}
    return [
        ours - theirs
        for row in first.rows
        if (ours := measure(row, "average_accuracy")) is not None
        and (theirs := others.get(row.seed)) is not None
    ]


class PairedComparison(NamedTuple):
    """MEGA-II and its opponent in one setting."""

    setting: Setting
    one: Summary
    other: Summary
    by_seed: Comparison  # of average accuracy, seed by seed
    best: Summary  # of all methods that learn task after task

    @property
    def gain(self) -> Estimate:
        """The difference in points and its 95 % interval."""
        return Estimate.of(self.by_seed.mean, self.by_seed.std, self.by_seed.seeds)

    @property
    def opponent(self) -> str:
        """The name of the other."""
        return method_name(self.other.method)

    @property
    def mark(self) -> Literal["held", "not-held", "open"]:
        """Whether the one is ahead beyond chance, behind, or the seeds do not settle it."""
        return "held" if self.gain.low > 0 else "not-held" if self.gain.high < 0 else "open"

    @property
    def seconds(self) -> tuple[float, float]:
        """What a run of each takes: the median, as the first one starts up."""
        one, other = ([row.seconds for row in each.rows] for each in (self.one, self.other))
        return statistics.median(one), statistics.median(other)

    @property
    def times(self) -> float | None:
        """How many times the other's seconds a run takes, or None where that says nothing."""
        return None if self.not_compared else self.seconds[0] / self.seconds[1]

    @property
    def not_compared(self) -> str:
        """Why seconds are not: other devices or other days, or runs too short to tell."""
        one, other = self.one, self.other
        if one.device != other.device:
            return f"on {one.device} and {other.device}, so not to be compared"
        if min(self.seconds) < _TOO_SHORT:
            return f"on {one.device}; below {_TOO_SHORT:.0f} seconds not compared"
        if one.dates != other.dates:
            return f"on {one.device}; on other days, so not to be compared"
        return ""


def paired_comparisons(
    summaries: Sequence[Summary], defaults: PaperDefaults
) -> list[PairedComparison]:
    """Return the settings where MEGA-II and a baseline share two finished seeds or more.

    The opponent is the first of the baselines, by ``OPPONENT_RULE``.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    settings = by_setting(trained)
    found = []
    for setting in sorted(settings, key=setting_rank):
        chosen = [*representatives(settings[setting], defaults).values()]
        lines = _in_each_precision(settings[setting], defaults)
        pairs = [pair for name in _OPPONENTS for pair in comparable(lines, ("mega-ii", name))]
        for one, other in pairs[:1]:
            found.append(PairedComparison(setting, one, other, compare(one, other), _best(chosen)))
    return found


def _in_each_precision(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[Summary]:
    """Return the line that speaks for each method in each precision, the most usual first."""
    groups: dict[object, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(precision(summary), []).append(summary)
    lines = [one for group in groups.values() for one in representatives(group, defaults).values()]
    return sorted(lines, key=defaults.distance)


def _best(summaries: Sequence[Summary]) -> Summary:
    return max((each for each in summaries if each.method != "multi-task"), key=_average_accuracy)


def _average_accuracy(summary: Summary) -> float:
    number = summary.statistic("average_accuracy")
    return -1.0 if number is None else number.mean
