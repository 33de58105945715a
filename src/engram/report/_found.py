"""What claims are judged by: the runs on one version of the data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from engram.paper import settings, table_methods
from engram.report._definitions import in_setting, to_the_end
from engram.report._estimate import Estimate
from engram.report._quantities import quantity, representatives
from engram.report._sizes import projected_sizes
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.runs import Row

NOT_RUN = "not run"
_LOST = ("average_accuracy", "forgetting", "lca_10", "change_over_tasks")  # by who diverges
_SAME = {"er": "mega-i-equal"}  # one method, which the paper's ablation has another name for
Values = dict[int, tuple[float, str]]  # by seed: the number, and the device it was made on


class Pair(NamedTuple):
    """What is compared: a measure of two methods, each in its setting, or of the first alone."""

    measure: str
    first: tuple[str, str]  # a setting and a method
    second: tuple[str, str | None]
    ratio: bool  # first / second instead of first - second


class Diverged(NamedTuple):
    """How many of a method's seeds have no numbers."""

    method: str
    seeds: int
    of: int


class Told(NamedTuple):
    """An estimate, or why there is none; whether it rests on what nobody ran, and who diverged."""

    ours: Estimate | None
    missing: str = ""
    projected: bool = False
    diverged: tuple[Diverged, ...] = ()


class Found:
    """What was run on the same data; ``label`` says what that stands in with, if it does.

    Only what was run with the presets of a setting speaks of it; whether a method fits is told by
    a run with fewer examples as well.
    """

    def __init__(self, summaries: Sequence[Summary], standard: Standard) -> None:
        self.label = summaries[0].setting.stand_in
        usual = [summary for summary in summaries if standard.is_preset(summary)]
        self._found = {
            name: representatives(in_setting(usual, name), standard) for name in settings()
        }
        as_usual = [summary for summary in summaries if standard.share(summary) is not None]
        self._ended = {
            name: [row for summary in to_the_end(as_usual, name) for row in summary.rows]
            for name in settings()
        }

    def ran(self, setting: str, method: str) -> bool:
        """Say whether a method was run there."""
        return self._named(setting, method) in self._found[setting]

    def estimate(self, pair: Pair) -> Told:
        """Return the estimate seed by seed, or why there is none."""
        measure, first, second, ratio = pair
        ones = self._values(measure, *first)
        if second[1] is None:
            values = [value for value, _ in ones.values()]
            lost = self._diverged(measure, first)
            return Told(Estimate.over(values), diverged=lost) if values else Told(None, NOT_RUN)
        others = self._values(measure, second[0], second[1])
        projected = None if ones else projected_sizes(first[0]).get(first[1], {}).get(measure)
        if projected is not None:
            ones = dict.fromkeys(others, (projected, ""))
        shared = [(ones[seed], others[seed]) for seed in ones if seed in others]
        if measure == "seconds" and any(one[1] != other[1] for one, other in shared):
            return Told(None, "run on different devices")
        if not shared:
            return Told(None, NOT_RUN if not (ones and others) else "no seed in common")
        pairs = [(one[0], other[0]) for one, other in shared]
        if ratio and any(other == 0 for _, other in pairs):
            return Told(None, "divided by 0")
        values = [one / other if ratio else one - other for one, other in pairs]
        lost = self._diverged(measure, first) + self._diverged(measure, (second[0], second[1]))
        return Told(Estimate.over(values), projected=projected is not None, diverged=lost)

    def _values(self, measure: str, setting: str, method: str) -> Values:
        found = self._found[setting]
        if measure == "finished":
            rows = [row for row in self._ended[setting] if row.identity["method"] == method]
            return _by_seed(rows, measure)
        if method != "median":
            name = self._named(setting, method)
            return _by_seed(found[name].rows, measure) if name in found else {}
        beside = [self._values(measure, setting, name) for name in table_methods(setting)]
        told = [values for values in beside if values]
        seeds = set[int]().union(*told)
        return {
            seed: (statistics.median(values[seed][0] for values in told), "")
            for seed in sorted(seeds)
            if len(told) > 1 and all(seed in values for values in told)
        }

    def _diverged(self, measure: str, of: tuple[str, str]) -> tuple[Diverged, ...]:
        """Return who has seeds without a number there, where it is one of the accuracies'."""
        setting, method = of
        summary = self._found[setting].get(self._named(setting, method))
        if measure not in _LOST or summary is None or not summary.failures:
            return ()
        return (Diverged(method, len(summary.failures), len(summary.rows)),)

    def _named(self, setting: str, method: str) -> str:
        return method if method in self._found[setting] else _SAME.get(method, method)


def _by_seed(rows: Sequence[Row], measure: str) -> Values:
    known = {row.seed: (quantity(row, measure), row.device) for row in rows}
    return {seed: (value, device) for seed, (value, device) in known.items() if value is not None}
