"""The paper's claims: taken apart into numbers that can be checked, and judged by a store's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from engram.app.paper import benchmarks, claims, printed, settings, table_methods
from engram.app.report.estimates import Estimate, holm
from engram.app.report.measures import quantity
from engram.app.report.paper_defaults import PaperDefaults, representatives
from engram.app.report.projections import projected_sizes, projected_times
from engram.app.report.summary import Summary, by_data
from engram.app.runs import Row, canonical

_MOST_NAMED = 4  # methods: more than these would fill a screen
_NOT_RUN = "not run"
_LOST = ("average_accuracy", "forgetting", "lca_10", "change_over_tasks")  # by who diverges
_HEIGHTS = (*_LOST, "k2_below_1_percent")  # what other data has other values of
_REPETITIONS = 5  # of a measured time, each by a clock of its own
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
    NO_DIFFERENCE = "not held: no difference"
    UNSETTLED = "not held: not settled by the seeds"
    OPEN = "cannot be told yet"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True)
class Part:
    """One number that a claim is about, and the open range where the claim puts it.

    ``of`` and ``than`` are methods or ``"median"``; the number is of - than, of / than, or of
    alone. It is held where the whole 95 % interval lies in the range, not held where all of it
    lies beyond a bound, and otherwise the seeds do not settle it: nor does one seed, nor do seeds
    that are all equal to the bound. There is no difference where the interval has 0 in it and
    excludes the difference that the paper prints. Without results it cannot be told, and how high
    something is on a stand-in says nothing of how high it is on the paper's data.
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
    equals: tuple[str, ...] = ()  # methods that ``than`` is equal to in every number of every seed
    sure: bool = False  # settled after Holm's correction for all numbers of all claims

    @property
    def verdict(self) -> Verdict:
        """Whether this part is held."""
        if self.ours is None:
            return Verdict.OPEN
        if self.stand_in and self.measure in _HEIGHTS and {*self._bounds} - {0.0}:
            return Verdict.NOT_TESTABLE
        if self.above < self.ours.low and self.ours.high < self.below:
            return Verdict.HELD
        if self.ours.high < self.above or self.ours.low > self.below:
            return Verdict.NOT_HELD
        return Verdict.NO_DIFFERENCE if self._excludes_the_papers else Verdict.UNSETTLED

    @property
    def chance(self) -> float:
        """The p of what the verdict rests on: the mean against the bounds it keeps or breaks.

        That there is no difference rests on the paper's number.
        """
        assert self.ours is not None
        if self.verdict is Verdict.NO_DIFFERENCE and self.paper is not None:
            return self.ours.chance(self.paper)
        mean = self.ours.mean
        broken = [bound for bound in self._bounds if not self.above < mean < self.below]
        nearest = min(broken, key=lambda bound: abs(mean - bound), default=None)
        against = self._bounds if nearest is None else [nearest]
        return max(self.ours.chance(bound) for bound in against)

    @property
    def largest(self) -> float:
        """The largest difference that the interval leaves room for."""
        assert self.ours is not None
        return max(abs(self.ours.low), abs(self.ours.high))

    @property
    def aside(self) -> bool:
        """Whether the claim is marked without it: nobody waits for it, or it says nothing."""
        too_long = self.ours is None and self.too_long
        return too_long or self.verdict is Verdict.NOT_TESTABLE

    @property
    def _bounds(self) -> list[float]:
        return [bound for bound in (self.above, self.below) if math.isfinite(bound)]

    @property
    def _excludes_the_papers(self) -> bool:
        """Whether the interval has no room for the difference that the paper prints."""
        if self.ours is None or self.paper is None or self.ratio or self.stand_in:
            return False
        if self._bounds != [0.0] or self.ours.low == self.ours.high:
            return False
        claimed = self.above < self.paper < self.below  # the paper's own may not bear it out
        return claimed and not self.ours.low <= self.paper <= self.ours.high


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
        worst = [Verdict.NOT_HELD, Verdict.NO_DIFFERENCE, Verdict.OPEN]
        worst += [Verdict.UNSETTLED, Verdict.HELD]
        untestable = any(part.verdict is Verdict.NOT_TESTABLE for part in self.parts)
        nothing = Verdict.NOT_TESTABLE if untestable else Verdict.OPEN
        return min(verdicts, key=worst.index, default=nothing)

    @property
    def mark(self) -> str:
        """The verdict in words, and what numbers it rests on, or does without."""
        measured = [part for part in self.parts if part.ours is not None]
        words = [self.verdict.value]
        if self.verdict is Verdict.NO_DIFFERENCE:
            words[0] += f" larger than {self._largest:.2f}"
        if self.verdict is not Verdict.NOT_TESTABLE and self.count(Verdict.NOT_TESTABLE):
            words.append(f"in part {Verdict.NOT_TESTABLE.value}")
        words += _in_part("on a stand-in", [bool(part.stand_in) for part in measured])
        words += _in_part("projected", [part.projected for part in measured])
        without = _absent_methods(
            part for part in self.parts if part.ours is not None or part.aside
        )
        words += [f"without {without}"] if without and self.verdict is not Verdict.OPEN else []
        return ", ".join(words)

    def count(self, verdict: Verdict, *, sure: bool = False) -> int:
        """Return how many parts have this verdict, all of them or those that are ``sure``."""
        return sum(part.verdict == verdict and (part.sure or not sure) for part in self.parts)

    @property
    def _largest(self) -> float:
        none = [part for part in self.parts if part.verdict is Verdict.NO_DIFFERENCE]
        return max(part.largest for part in none)

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
    parts = {
        text: [part for check in checks for part in judged.parts(check)]
        for text, checks in claims().items()
    }
    tested = [
        (text, place)
        for text, each in parts.items()
        for place, part in enumerate(each)
        if part.verdict not in (Verdict.OPEN, Verdict.NOT_TESTABLE)
    ]
    settled = holm([parts[text][place].chance for text, place in tested])
    for (text, place), sure in zip(tested, settled, strict=True):
        parts[text][place] = replace(parts[text][place], sure=sure)
    return [Claim(text, tuple(each)) for text, each in parts.items()]


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
        """Yield a part for each method, each it is compared with and each setting.

        Methods that learn nothing else than another one there, number by number, are one.
        """
        for setting in check["in"]:
            apart = check.get("except", {}).get(setting, ())
            for of in _expanded(check["of"], setting):
                thans = _expanded(check.get("than", [None]), setting)
                for than, *equal in self._apart(
                    [each for each in thans if each not in apart], setting
                ):
                    yield replace(self._part(check, setting, of, than), equals=tuple(equal))

    def _apart(self, methods: Sequence[Any], setting: str) -> list[list[Any]]:
        """Return the methods, those that are equal in every number of every seed together."""
        together = dict[Any, list[Any]]()
        for method in methods:
            runs = self._runs(setting, method) if method else None
            together.setdefault(runs or method, []).append(method)
        return list(together.values())

    def _runs(self, setting: str, method: str) -> tuple[Any, ...] | None:
        """Return what identifies the numbers of a method where it was first found."""
        found = next((each for each in self._found if each.ran(setting, method)), None)
        return None if found is None else (self._found.index(found), found.numbers(setting, method))

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

    def numbers(self, setting: str, method: str) -> tuple[tuple[int, str], ...]:
        """Return all accuracies of each seed; what diverged is equal to nothing."""
        rows = self._found[setting][self._named(setting, method)].rows
        return tuple(
            sorted(
                (
                    row.seed,
                    canonical(row.outcome["accuracy"])
                    if row.outcome["failure"] is None
                    else row.address,
                )
                for row in rows
            )
        )

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
        if measure == "seconds" and shared:
            clocks = min(self._clocks(*first), self._clocks(second[0], second[1]))
            if clocks < _REPETITIONS:
                return _Measured(None, f"timed {clocks} of {_REPETITIONS} times")
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

    def _clocks(self, setting: str, method: str) -> int:
        """Return how often a method was timed: runs that trained as one stack share a clock."""
        rows = self._found[setting][self._named(setting, method)].rows
        return int(sum(1 / float(row.outcome["facts"].get("stacked", 1)) for row in rows) + 0.5)

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
