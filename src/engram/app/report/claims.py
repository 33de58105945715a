"""The paper's claims, judged by the numbers in a store."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engram.app.paper import benchmarks, claims, printed, settings, table_methods
from engram.app.report.estimates import Estimate
from engram.app.report.measures import quantity
from engram.app.report.paper_defaults import PaperDefaults, representatives
from engram.app.report.projections import projected_sizes, projected_times
from engram.app.report.summary import Summary, by_data
from engram.app.report.verdicts import Claim, Diverged, Part
from engram.app.runs import Row

_NOT_RUN = "not run"
_LOST = ("average_accuracy", "forgetting", "lca_10", "change_over_tasks")  # by who diverges
_SAME = {"er": "mega-i-equal"}  # one method, which the paper's ablation has another name for
_Values = dict[int, tuple[float, str]]  # by seed: the number, and the device it was made on


def judge(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[Claim]:
    """Return the paper's claims, in its order, each with our numbers and the paper's."""
    judged = _Judge(summaries, defaults)
    return [
        Claim(text, tuple(part for check in checks for part in judged.parts(check)))
        for text, checks in claims().items()
    ]


class _Judge:
    def __init__(self, summaries: Sequence[Summary], defaults: PaperDefaults) -> None:
        trained = [summary for summary in summaries if summary.setting.split == "training"]
        self._found = [_RunsOnData(same, defaults) for same in by_data(trained)]
        self._too_long = {
            (benchmark, method)
            for benchmark in benchmarks()
            for method, time in projected_times(benchmark, trained, defaults).items()
            if time.too_long
        }

    def parts(self, check: Mapping[str, Any]) -> Iterator[Part]:
        """Yield a part for each method, each it is compared with and each setting."""
        for setting in check["in"]:
            apart = check.get("except", {}).get(setting, ())
            for of in _expanded(check["of"], setting):
                for than in _expanded(check.get("than", [None]), setting):
                    if than not in apart:
                        yield self._part(check, setting, of, than)

    def _part(self, check: Mapping[str, Any], setting: str, of: str, than: str | None) -> Part:
        measure, ratio = check["measure"], check.get("ratio", False)
        above, below = check.get("above", -math.inf), check.get("below", math.inf)
        pair = _Pair(measure, (setting, of), (check.get("than_in", setting), than), ratio)
        measured, found = self._measure(pair)
        label = found.label if found and not measured.projected else ""
        absent = self._absent(pair, measured, found)
        return Part(
            measure=measure,
            of=of,
            than=than,
            ratio=ratio,
            where=_where(pair, label, measured),
            above=above,
            below=below,
            ours=measured.ours,
            paper=check.get("paper", _papers(setting, measure, of, than)),
            missing=measured.missing,
            stand_in=label,
            projected=measured.projected,
            absent=tuple(method for _, method in absent),
            diverged=measured.diverged,
            too_long=bool(absent) and set(absent) <= self._too_long,
        )

    def _measure(self, pair: _Pair) -> tuple[_Measured, _RunsOnData | None]:
        """Return the estimate on the first data that has one, and what was run on that data.

        Without any, why. Stand-ins come last.
        """
        reason = _NOT_RUN
        for found in self._found:
            measured = found.estimate(pair)
            if measured.ours is not None:
                return measured, found
            reason = measured.missing if reason == _NOT_RUN else reason
        return _Measured(None, reason), None

    def _absent(
        self, pair: _Pair, measured: _Measured, found: _RunsOnData | None
    ) -> list[tuple[str, str]]:
        """Return settings and methods that were not run: of a median, on the data of the others.

        What is projected is not missing.
        """
        setting, method = pair.second
        if measured.ours is not None and "median" not in (pair.first[1], method):
            return []
        asked = [pair.first] if method is None else [pair.first, (setting, method)]
        each = dict.fromkeys((place, name) for place, of in asked for name in _members(of, place))
        data = [found] if found else self._found
        return [one for one in each if not any(some.ran(*one) for some in data)]


class _Pair(NamedTuple):
    """What is compared: a measure of two methods, each in its setting, or of the first alone."""

    measure: str
    first: tuple[str, str]  # a setting and a method
    second: tuple[str, str | None]
    ratio: bool  # first / second instead of first - second


class _Measured(NamedTuple):
    """An estimate, or why there is none; whether it rests on what nobody ran, and who diverged."""

    ours: Estimate | None
    missing: str = ""
    projected: bool = False
    diverged: tuple[Diverged, ...] = ()


class _RunsOnData:
    """What was run on the same data; ``label`` says what that stands in with, if it does.

    Only what was run with the presets of a setting speaks of it; whether a method fits is shown by
    a run with fewer examples as well.
    """

    def __init__(self, summaries: Sequence[Summary], defaults: PaperDefaults) -> None:
        self.label = summaries[0].setting.stand_in
        usual = [summary for summary in summaries if defaults.is_preset(summary)]
        self._found = {
            name: representatives(in_setting(usual, name), defaults) for name in settings()
        }
        as_usual = [summary for summary in summaries if defaults.share(summary) is not None]
        self._ended = {
            name: [row for summary in _to_the_end(as_usual, name) for row in summary.rows]
            for name in settings()
        }

    def ran(self, setting: str, method: str) -> bool:
        """Say whether a method was run there."""
        return self._named(setting, method) in self._found[setting]

    def estimate(self, pair: _Pair) -> _Measured:
        """Return the estimate seed by seed, or why there is none."""
        measure, first, second, ratio = pair
        ones = self._values(measure, *first)
        if second[1] is None:
            values = [value for value, _ in ones.values()]
            lost = self._diverged(measure, first)
            return (
                _Measured(Estimate.over(values), diverged=lost)
                if values
                else _Measured(None, _NOT_RUN)
            )
        others = self._values(measure, second[0], second[1])
        projected = None if ones else projected_sizes(first[0]).get(first[1], {}).get(measure)
        if projected is not None:
            ones = dict.fromkeys(others, (projected, ""))
        shared = [(ones[seed], others[seed]) for seed in ones if seed in others]
        if measure == "seconds" and any(one[1] != other[1] for one, other in shared):
            return _Measured(None, "run on different devices")
        if not shared:
            return _Measured(None, _NOT_RUN if not (ones and others) else "no seed in common")
        pairs = [(one[0], other[0]) for one, other in shared]
        if ratio and any(other == 0 for _, other in pairs):
            return _Measured(None, "divided by 0")
        values = [one / other if ratio else one - other for one, other in pairs]
        lost = self._diverged(measure, first) + self._diverged(measure, (second[0], second[1]))
        return _Measured(Estimate.over(values), projected=projected is not None, diverged=lost)

    def _values(self, measure: str, setting: str, method: str) -> _Values:
        found = self._found[setting]
        if measure == "finished":
            rows = [row for row in self._ended[setting] if row.identity["method"] == method]
            return _by_seed(rows, measure)
        if method != "median":
            name = self._named(setting, method)
            return _by_seed(found[name].rows, measure) if name in found else {}
        beside = [self._values(measure, setting, name) for name in table_methods(setting)]
        measured = [values for values in beside if values]
        seeds = set[int]().union(*measured)
        return {
            seed: (statistics.median(values[seed][0] for values in measured), "")
            for seed in sorted(seeds)
            if len(measured) > 1 and all(seed in values for values in measured)
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


def _by_seed(rows: Sequence[Row], measure: str) -> _Values:
    known = {row.seed: (quantity(row, measure), row.device) for row in rows}
    return {seed: (value, device) for seed, (value, device) in known.items() if value is not None}


def _where(pair: _Pair, label: str, measured: _Measured) -> str:
    known = settings()
    titles = dict.fromkeys(known[name]["title"] for name, _ in (pair.first, pair.second))
    kind = f"stand-in: {label}" if label else "projected" if measured.projected else ""
    return " against ".join(titles) + (f" ({kind})" if kind else "")


def _members(method: str, setting: str) -> Sequence[str]:
    return table_methods(setting) if method == "median" else [method]


def _expanded(methods: Any, setting: str) -> Sequence[Any]:  # noqa: ANN401 (from JSON)
    if methods == "table":
        return table_methods(setting)
    return [methods] if isinstance(methods, str) else methods


def _papers(setting: str, measure: str, of: str, than: str | None) -> float | None:
    """Return the paper's own difference, where it prints both numbers."""
    one = printed(setting, of, measure)
    other = None if than is None else printed(setting, than, measure)
    return None if one is None or other is None else one.mean - other.mean


def in_setting(summaries: Sequence[Summary], name: str) -> list[Summary]:
    """Return the results in one of the paper's settings: with all examples unless it says fewer.

    What was run on other data, which is no listed stand-in, is not among them.
    """
    found = _to_the_end(summaries, name)
    most = max((summary.setting.examples for summary in found), default=0)
    wanted = settings()[name].get("examples", most)
    return [summary for summary in found if summary.setting.examples == wanted]


def _to_the_end(summaries: Sequence[Summary], name: str) -> list[Summary]:
    """Return the results with all tasks of one of the paper's settings, whatever the examples."""
    known = settings()[name]
    return [
        summary
        for summary in summaries
        if summary.setting.benchmark in known["benchmarks"]
        and summary.setting.tasks == known["tasks"]
        and not summary.setting.other
    ]
