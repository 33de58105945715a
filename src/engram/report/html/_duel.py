"""MEGA-II against one baseline in every setting where both were run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from engram.report._comparison import Comparison, comparable, compare, precision
from engram.report._estimate import Estimate
from engram.report._quantities import representatives
from engram.report._setting import Setting
from engram.report._standard import Standard
from engram.report._summary import Summary, by_setting
from engram.report.html._names import method_name, setting_rank

_BASELINES = ("ewc", "pi", "mas", "rwalk", "icarl", "mer", "prog-nn", "gem", "er")
_OPPONENTS = ("a-gem", "van", *_BASELINES)  # the first that was run
RULE = (
    "MEGA-II is set against A-GEM in the same precision; where that was not run, against VAN, "
    "which is plain training; where neither was, against the first of the other baselines in the "
    "tables' order."
)
TOO_SHORT = 5.0  # seconds: what a shorter run takes says more of the machine than of the method


class Duel(NamedTuple):
    """MEGA-II and its opponent in one setting."""

    setting: Setting
    one: Summary
    other: Summary
    seeds: Comparison  # of average accuracy, seed by seed
    best: Summary  # of all methods that learn task after task

    @property
    def gain(self) -> Estimate:
        """The difference in points and its 95 % interval."""
        return Estimate.of(self.seeds.mean, self.seeds.std, self.seeds.seeds)

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
        if min(self.seconds) < TOO_SHORT:
            return f"on {one.device}; below {TOO_SHORT:.0f} seconds not compared"
        if one.dates != other.dates:
            return f"on {one.device}; on other days, so not to be compared"
        return ""


def duels(summaries: Sequence[Summary], standard: Standard) -> list[Duel]:
    """Return the settings where MEGA-II and a baseline share two finished seeds or more.

    The opponent is the first of the baselines, by ``RULE``.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    settings = by_setting(trained)
    found = []
    for setting in sorted(settings, key=setting_rank):
        chosen = [*representatives(settings[setting], standard).values()]
        lines = _in_each_precision(settings[setting], standard)
        pairs = [pair for name in _OPPONENTS for pair in comparable(lines, ("mega-ii", name))]
        for one, other in pairs[:1]:
            found.append(Duel(setting, one, other, compare(one, other), _best(chosen)))
    return found


def _in_each_precision(summaries: Sequence[Summary], standard: Standard) -> list[Summary]:
    """Return the line that speaks for each method in each precision, the most usual first."""
    groups: dict[object, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(precision(summary), []).append(summary)
    lines = [one for group in groups.values() for one in representatives(group, standard).values()]
    return sorted(lines, key=standard.strangeness)


def _best(summaries: Sequence[Summary]) -> Summary:
    return max((each for each in summaries if each.method != "multi-task"), key=_accuracy)


def _accuracy(summary: Summary) -> float:
    number = summary.statistic("average_accuracy")
    return -1.0 if number is None else number.mean
