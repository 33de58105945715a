"""A claim of the paper, taken apart into numbers that can be checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engram.app.report.estimates import Estimate

_MOST_NAMED = 4  # methods: more than these would fill a screen


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
