"""The paper's claims: taken apart into numbers that can be checked, and judged by a store's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from engram.app.paper import benchmarks, claims, printed, settings, table_methods
from engram.app.report.estimates import Estimate
from engram.app.report.measures import quantity
from engram.app.report.paper_defaults import PaperDefaults, representatives
from engram.app.report.projections import projected_sizes, projected_times
from engram.app.report.summary import Summary, by_data
from engram.app.runs import Row

_MOST_NAMED = 4  # methods: more than these would fill a screen
_NOT_RUN = "not run"
_LOST = ("average_accuracy", "forgetting", "lca_10", "change_over_tasks")  # by who diverges
_SAME = {"er": "mega-i-equal"}  # one method, which the paper's ablation has another name for
_Values = dict[int, tuple[float, str]]  # by seed: the number, and the device it was made on


class Diverged(NamedTuple):
    """How many of a method's seeds have no numbers."""

    method: str
    seeds: int
    of: int


class Verdict(StrEnum):
    """What our numbers say of a claim."""

    HELD = "held"
    NOT_HELD = "not held"
    UNSETTLED = "not held: not settled by the seeds"
    OPEN = "cannot be told yet"


@dataclass(frozen=True)
class Part:
    """One number that a claim is about, and the open range where the claim puts it.

    ``of`` and ``than`` are methods or ``"median"``; the number is of - than, of / than, or of
    alone. It is held where the whole 95 % interval lies in the range, not held where all of it
    lies beyond a bound, and otherwise the seeds do not settle it: nor does one seed, nor do seeds
    that are all equal to the bound. Without results it cannot be told.
    """

    measure: str
    of: str
    than: str | None
    ratio: bool
    where: str  # the setting's title; two of them where it is compared with another setting
    above: float
    below: float
    ours: Estimate | None
    paper: float | None
    missing: str = ""  # why there is no number of ours
    stand_in: str = ""  # the label of what our number was measured on, where that is a stand-in
    projected: bool = False  # our number is computed from the size of what was not run
    absent: tuple[str, ...] = ()  # methods not run there: a median does without them
    too_long: bool = False  # whole runs of all these are projected to take too long
    diverged: tuple[Diverged, ...] = ()  # methods of which some seeds have no number

    @property
    def verdict(self) -> Verdict:
        """Whether this part is held."""
        if self.ours is None:
            return Verdict.OPEN
        if self.above < self.ours.low and self.ours.high < self.below:
            return Verdict.HELD
        if self.ours.high < self.above or self.ours.low > self.below:
            return Verdict.NOT_HELD
        return Verdict.UNSETTLED

    @property
    def aside(self) -> bool:
        """Whether nobody waits for this number, so that the claim is marked without it."""
        return self.ours is None and self.too_long


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper's and everything it says in numbers.

    It is marked without the parts that nobody waits for, as the mark says.
    """

    text: str
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> Verdict:
        """Not held if any part is not, held if all are; results may still be missing."""
        verdicts = [part.verdict for part in self.parts if not part.aside]
        worst = [Verdict.NOT_HELD, Verdict.OPEN, Verdict.UNSETTLED, Verdict.HELD]
        return min(verdicts, key=worst.index, default=Verdict.OPEN)

    @property
    def mark(self) -> str:
        """The verdict in words, and what numbers it rests on, or does without."""
        measured = [part for part in self.parts if part.ours is not None]
        words = [self.verdict.value]
        words += _in_part("on a stand-in", [bool(part.stand_in) for part in measured])
        words += _in_part("projected", [part.projected for part in measured])
        without = _absent_methods(
            part for part in self.parts if part.ours is not None or part.aside
        )
        words += [f"without {without}"] if without and self.verdict is not Verdict.OPEN else []
        return ", ".join(words)

    def count(self, verdict: Verdict) -> int:
        """Return how many parts have this verdict."""
        return sum(part.verdict == verdict for part in self.parts)

    @property
    def missing(self) -> str:
        """What was not run, and why other numbers are missing, in a clause; empty if none is."""
        clauses = [f"not run: {names}"] if (names := _absent_methods(self.parts)) else []
        others: dict[str, dict[str, None]] = {}
        for part in self.parts:
            if part.ours is None and not part.absent:
                others.setdefault(part.missing, {})[part.where] = None
        clauses += [f"{reason}: {', '.join(places)}" for reason, places in others.items()]
        return "; ".join(clauses)


def _in_part(what: str, which: Sequence[bool]) -> list[str]:
    return [what if all(which) else f"in part {what}"] if any(which) else []


def _absent_methods(parts: Iterable[Part]) -> str:
    """Return the methods that were not run, and where: ``MER, PROG-NN on 50 tasks of 200``.

    Many are counted, not named.
    """
    methods: dict[str, dict[str, None]] = {}
    for part in parts:
        if part.absent:
            methods.setdefault(part.where, {}).update(dict.fromkeys(part.absent))
    places: dict[str, list[str]] = {}
    for where, names in methods.items():
        many = len(names) > _MOST_NAMED
        named = f"{len(names)} methods" if many else ", ".join(names).upper()
        places.setdefault(named, []).append(where)
    return "; ".join(f"{named} on {', '.join(where)}" for named, where in places.items())


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
