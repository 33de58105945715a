"""Two methods in every setting where both were run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engram.report._comparison import Comparison, comparable, compare
from engram.report._estimate import Estimate
from engram.report._quantities import representatives
from engram.report._standard import Standard
from engram.report._summary import Setting, Summary, by_setting
from engram.report.html._names import setting_rank


class Duel(NamedTuple):
    """Both methods in one setting."""

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
    def times(self) -> float | None:
        """How many times the other's seconds a run takes; None where the devices differ."""
        if self.one.device != self.other.device or not self.other.seconds:
            return None
        return self.one.seconds / self.other.seconds


def duels(summaries: Sequence[Summary], standard: Standard, pair: tuple[str, str]) -> list[Duel]:
    """Return the settings where two methods have two finished seeds or more in common."""
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    settings = by_setting(trained)
    found = []
    for setting in sorted(settings, key=setting_rank):
        chosen = [*representatives(settings[setting], standard).values()]
        for one, other in comparable(chosen, pair):
            found.append(Duel(setting, one, other, compare(one, other), _best(chosen)))
    return found


def _best(summaries: Sequence[Summary]) -> Summary:
    return max((each for each in summaries if each.method != "multi-task"), key=_accuracy)


def _accuracy(summary: Summary) -> float:
    number = summary.statistic("average_accuracy")
    return -1.0 if number is None else number.mean
