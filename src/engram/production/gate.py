"""The gate: whether a candidate may answer, decided on bounds of intervals, never on estimates.

A candidate is

- accepted if the bound of *every* interval is on the right side of its limit. Each of them is
  tested at the full level: accepting wrongly needs one wrong part to pass, so the level of one
  test is that of all (intersection-union);
- rejected if *some* part is on the wrong side of its limit, with p-values corrected for their
  number by Holm's procedure;
- undecided otherwise: there is too little evidence.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.errors import EngramError, shown, unknown
from engram.lab.targets import Classes, Numbers, Target
from engram.production import intervals
from engram.production.drift import Contradiction
from engram.production.exam import Answers, Questions, influences, metric
from engram.production.intervals import Interval
from engram.production.preprocessing import Preprocessing

Verdict = Literal["accepted", "rejected", "undecided"]
What = Literal["past", "period", "slice", "new", "new slice"]
_TABLES = {"periods", "slices"}


@dataclass(frozen=True)
class Limits:
    """What a part of the exam may lose, or must gain; None: nothing is asked of it."""

    max_drop: float | None = None
    max_negative_flips: float | None = None
    min_gain: float | None = None

    def over(self, other: Limits) -> Limits:
        """Return these limits, the other's where there are none."""
        own = {name: each for name, each in vars(self).items() if each is not None}
        return replace(other, **own)


@dataclass(frozen=True)
class Gate:
    """What is asked of a candidate.

    Args:
        max_drop: how much the metric may fall: on all the past, in every period and in every slice.
        max_negative_flips: the share of examples that were right and are wrong, likewise.
        min_gain: by how much the metric must rise on the new data, at least.
        max_contradiction: by how much less often new labels may agree with the parent than old ones
            do, where it is at least 90 % sure; of classes and labels.
        confidence: the probability that an acceptance is no mistake, in all.
        each_period: whether every period is asked, or only all of them together.
        periods: limits of their own for periods, by name.
        slices: limits of their own for slices, by column or by ``column=value``; their columns are
            examined. ``min_gain`` is of the new data in a slice, the others of its past.
    """

    max_drop: float = 0.05
    max_negative_flips: float | None = None
    min_gain: float | None = None
    max_contradiction: float | None = 0.1
    confidence: float = 0.95
    each_period: bool = True
    periods: Mapping[str, Limits] = field(default_factory=dict)
    slices: Mapping[str, Limits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("max_drop", self.max_drop, 0, None)
        _check("max_negative_flips", self.max_negative_flips, 0, 1)
        _check("min_gain", self.min_gain, None, None)
        _check("max_contradiction", self.max_contradiction, 0, 1)
        _check("confidence", self.confidence, 0.5, 0.9999)
        if not isinstance(self.each_period, bool):
            raise EngramError(f"each_period must be true or false, not {shown(self.each_period)}.")
        for limits in (*self.periods.values(), *self.slices.values()):
            _check("max_drop", limits.max_drop, 0, None)
            _check("max_negative_flips", limits.max_negative_flips, 0, 1)
            _check("min_gain", limits.min_gain, None, None)
        for name, limits in self.periods.items():
            if limits.min_gain is not None:
                raise EngramError(
                    f"periods.{name} has a min_gain, which is of new data alone, and periods are "
                    "of the past."
                )

    @classmethod
    def read(cls, path: str | Path) -> Gate:
        """Return the gate that a TOML file describes."""
        try:
            document = tomllib.loads(Path(path).read_text("utf-8"))
        except OSError as error:
            raise EngramError(
                f"{str(path)!r} cannot be read: {error.strerror or error}."
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise EngramError(f"{str(path)!r} is no TOML: {error}.") from error
        return cls.from_json(document)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Gate:
        """Return the gate of a document as TOML has it."""
        known = {each.name for each in dataclasses.fields(cls)}
        for name in document:
            if name not in known:
                raise unknown("setting of a gate", name, known)
        given = dict(document)
        for table in _TABLES & given.keys():
            if not isinstance(given[table], Mapping):
                raise EngramError(f"{table} must be a table, as in [{table}.NAME].")
            given[table] = {
                str(name): _limits(table, name, limits) for name, limits in given[table].items()
            }
        return cls(**given)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return dataclasses.asdict(self)

    @property
    def level(self) -> float:
        """The level of a bound: the candidate and the interpolation are two chances to pass."""
        return 1 - (1 - self.confidence) / 2

    def columns(self, slices: Sequence[str]) -> list[str]:
        """Return the columns to slice by: those that are asked for, and those that are limited."""
        return list(dict.fromkeys([*slices, *(name.partition("=")[0] for name in self.slices)]))

    def check(self, target: Target) -> None:
        """Refuse limits that cannot be asked of answers to a target."""
        limits = (*self.periods.values(), *self.slices.values())
        flips = [self.max_negative_flips, *(each.max_negative_flips for each in limits)]
        if isinstance(target, Numbers) and any(each is not None for each in flips):
            raise EngramError("max_negative_flips is of classes and labels; numbers have no flips.")

    def unmet(self, parts: Sequence[Part]) -> list[str]:
        """Return the periods and slices that have limits of their own and are no part."""
        names = {each.name for each in parts} | {each.name.partition("=")[0] for each in parts}
        return [name for name in (*self.periods, *self.slices) if name not in names]

    def limits_of(self, part: Part) -> Limits:
        """Return what is asked of a part."""
        common = Limits(self.max_drop, self.max_negative_flips)
        if part.what == "past":
            return common
        if part.what == "new":
            return Limits(min_gain=self.min_gain)
        if part.what == "period":
            own = self.periods.get(part.name)
            return own.over(common) if own else common if self.each_period else Limits()
        value, column = (self.slices.get(each) for each in (part.name, part.name.partition("=")[0]))
        own = (value or Limits()).over(column or Limits())
        if part.what == "new slice":
            return Limits(min_gain=own.min_gain)
        return replace(own.over(common), min_gain=None)


def _check(name: str, value: object, least: float | None, most: float | None) -> None:
    if value is None and name != "confidence":
        return
    number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if (
        not number
        or (least is not None and value < least)  # type: ignore[operator]
        or (most is not None and value > most)  # type: ignore[operator]
    ):
        bounds = [f"of at least {least}"] if least is not None else []
        bounds += [f"of at most {most}"] if most is not None else []
        raise EngramError(f"{name} must be a number {' and '.join(bounds)}, not {shown(value)}.")


def _limits(table: str, name: str, given: object) -> Limits:
    fields = {each.name for each in dataclasses.fields(Limits)}
    if not isinstance(given, Mapping):
        raise EngramError(f"{table}.{name} must be a table of {', '.join(sorted(fields))}.")
    for key in given:
        if key not in fields:
            raise unknown(f"limit of {table}.{name}", key, fields)
    return Limits(**given)


class Part(NamedTuple):
    """Examples of an exam that are judged together."""

    what: What
    name: str
    rows: NDArray[np.bool_]


def exam_parts(
    asked: Questions,
    names: Mapping[int, str],
    number: int,
    gate: Gate,
    slices: Sequence[str],
    preprocessing: Preprocessing,
) -> list[Part]:
    """Return what is judged: all the past, its periods, slices of it, and the new data.

    Slices of the new data are among them where the gate asks for a gain in them.
    """
    old = asked.periods != number
    parts = [Part("past", "", old)]
    periods = sorted({int(each) for each in asked.periods[old]})
    shown_names = [names.get(each, str(each)) for each in periods]
    for each, name in zip(periods, shown_names, strict=True):
        twice = shown_names.count(name) > 1
        parts.append(Part("period", f"{name} ({each})" if twice else name, asked.periods == each))
    gains = list[Part]()
    for column in gate.columns(slices):
        values = np.array(asked.slices(column, preprocessing), dtype=object)
        for value in sorted({str(each) for each in values[old]}):
            parts.append(Part("slice", f"{column}={value}", old & (values == value)))
        limited = [name.partition("=")[2] for name in gate.slices if name.startswith(f"{column}=")]
        for value in sorted({*(str(each) for each in values[~old]), *limited}):
            gain = Part("new slice", f"{column}={value}", ~old & (values == value))
            gains += [gain] if gate.limits_of(gain).min_gain is not None else []
    return [*parts, Part("new", names[number], ~old), *gains]


class Judged(NamedTuple):
    """What two models answer on a part, and what the gate says of it."""

    part: Part
    before: float
    after: float
    difference: Interval
    negative: Interval | None  # flips, as shares
    positive: int
    examples: int
    limits: Limits
    decision: Verdict | None  # None where nothing is asked
    reasons: list[str]


class _Test(NamedTuple):
    """One limit of one part: whether it is met for certain, and how probable it is that it is."""

    met: bool
    chance: float  # p-value of "it is met"
    met_words: str
    broken_words: str
    open_words: str


def judge(
    gate: Gate,
    parts: Sequence[Part],
    before: Answers,
    after: Answers,
    target: Target,
    against: Contradiction | None = None,
) -> tuple[Verdict, list[Judged], list[str]]:
    """Return the verdict, what is said of every part, and the verdict's reasons beside these.

    ``against`` is what new labels say of the parent, where it is to be judged.
    """
    judged, tests = list[Judged](), list[tuple[int | None, _Test]]()
    gate.check(target)
    for place, part in enumerate(parts):
        found, own = _examine(gate, part, before, after, target)
        judged.append(found)
        tests += [(place, test) for test in own]
    if against is not None and gate.max_contradiction is not None:
        tests.append((None, _contradicted(gate.max_contradiction, against, gate.level)))
    corrected = intervals.holm([test.chance for _, test in tests])
    said: dict[int | None, list[tuple[Verdict, str]]] = {}
    for (where, test), chance in zip(tests, corrected, strict=True):
        if test.met:
            decided: tuple[Verdict, str] = ("accepted", test.met_words)
        elif chance <= 1 - gate.level:
            decided = ("rejected", test.broken_words)
        else:
            decided = ("undecided", test.open_words)
        said.setdefault(where, []).append(decided)
    for place in range(len(parts)):
        if each_said := said.get(place):
            verdict = _worst([each for each, _ in each_said])
            words = [words for each, words in each_said if each == verdict]
            judged[place] = judged[place]._replace(decision=verdict, reasons=words)
    asked = [each.decision for each in judged if each.decision is not None]
    # Without a single part that is asked of there is no evidence.
    others = said.get(None, [])
    verdict = _worst([*asked, *(each for each, _ in others)]) if asked else "undecided"
    return verdict, judged, [words for each, words in others if each == verdict]


def _contradicted(most: float, against: Contradiction, level: float) -> _Test:
    found = against.loss(level)
    past, new = (against.past_right, against.past), (against.new_right, against.new)
    where = f"Where the parent is sure, new labels agree {100 * found.estimate:.1f} points less"
    return _Test(
        found.high <= most,
        intervals.independent_shares_above(past, new, most, level),
        f"{where}: for certain by no more than {most:g}.",
        f"{where}: for certain by more than {most:g}, so they contradict the past.",
        f"{where}: it may be by more than {most:g}; {against.new:,} examples do not tell.",
    )


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    order: tuple[Verdict, ...] = ("rejected", "undecided", "accepted")
    return min(verdicts, key=order.index)


def _examine(
    gate: Gate, part: Part, before: Answers, after: Answers, target: Target
) -> tuple[Judged, list[_Test]]:
    rows, level = part.rows, gate.level
    count, limits = int(rows.sum()), gate.limits_of(part)
    value_before, value_after = (
        metric(target, before.statistics[rows]),
        metric(target, after.statistics[rows]),
    )
    gained = lost = 0
    negative: Interval | None = None
    if before.right is not None and after.right is not None:
        lost = int((before.right[rows] & ~after.right[rows]).sum())
        gained = int((~before.right[rows] & after.right[rows]).sum())
        negative = intervals.share(lost, count, level)
    if isinstance(target, Classes):
        difference = intervals.paired_shares(gained, lost, count, level)

        def below(null: float) -> float:
            return intervals.paired_shares_below(gained, lost, count, max(null, -1.0))

    else:
        moved = np.zeros(0)
        if count:
            moved = (
                value_after
                - value_before
                + influences(target, after.statistics[rows])
                - influences(target, before.statistics[rows])
            )
        unit = max(1.0, float(np.abs(moved).max())) if count else 1.0
        difference = intervals.means(moved, level, unit)

        def below(null: float) -> float:
            return intervals.means_below(moved, null, unit)

    tests = []
    where = _where(part)
    if limits.max_drop is not None:
        drop = limits.max_drop
        tests.append(
            _Test(
                difference.low >= -drop,
                below(-drop),
                f"{where}: lost less than {drop:g} for certain.",
                f"{where}: lost more than {drop:g} for certain.",
                f"{where}: may have lost more than {drop:g}; {count:,} examples do not tell.",
            )
        )
    if limits.max_negative_flips is not None:
        assert negative is not None  # see `Gate.check`
        most = limits.max_negative_flips
        tests.append(
            _Test(
                negative.high <= most,
                intervals.share_above(lost, count, most) if count else 1.0,
                f"{where}: fewer than {most:g} of the answers went wrong for certain.",
                f"{where}: more than {most:g} of the answers went wrong for certain.",
                f"{where}: more than {most:g} of the answers may have gone wrong; {count:,} "
                "examples do not tell.",
            )
        )
    if limits.min_gain is not None:
        gain = limits.min_gain
        tests.append(
            _Test(
                difference.low >= gain,
                below(gain),
                f"{where}: gained {gain:g} or more for certain.",
                f"{where}: gained less than {gain:g} for certain.",
                f"{where}: may have gained less than {gain:g}; {count:,} examples do not tell.",
            )
        )
    found = Judged(
        part, value_before, value_after, difference, negative, gained, count, limits, None, []
    )
    return found, tests


def _where(part: Part) -> str:
    words = {
        "past": "All the past",
        "new": f"The new data ({part.name})",
        "new slice": f"The new data of {part.name}",
    }
    return words.get(part.what, f"{part.what.capitalize()} {part.name}")
