"""A claim of the paper, taken apart into numbers that can be checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from engram.report._estimate import Estimate


class Verdict(StrEnum):
    """What our numbers say of a claim."""

    HELD = "held"
    NOT_HELD = "not held"
    OPEN = "cannot be told yet"


@dataclass(frozen=True)
class Part:
    """One number that a claim is about, and the open range where the claim puts it.

    ``of`` and ``than`` are methods or ``"median"``; the number is of - than, of / than, or of
    alone. It is held where the whole 95 % interval lies in the range, not held where all of it
    lies beyond a bound, and cannot be told where results are missing or the seeds do not settle
    it: nor do seeds that are all equal to the bound.
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

    @property
    def verdict(self) -> Verdict:
        """Whether this part is held."""
        if self.ours is None or math.isinf(self.ours.low):
            return Verdict.OPEN
        if self.above < self.ours.low and self.ours.high < self.below:
            return Verdict.HELD
        if self.ours.high < self.above or self.ours.low > self.below:
            return Verdict.NOT_HELD
        return Verdict.OPEN


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper's and everything it says in numbers."""

    text: str
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> Verdict:
        """Not held if any part is not, held if all are; otherwise it cannot be told yet."""
        verdicts = {part.verdict for part in self.parts}
        if Verdict.NOT_HELD in verdicts:
            return Verdict.NOT_HELD
        return Verdict.HELD if verdicts == {Verdict.HELD} else Verdict.OPEN

    @property
    def mark(self) -> str:
        """The verdict in words, and whether numbers of it were measured on stand-ins."""
        told = [bool(part.stand_in) for part in self.parts if part.ours is not None]
        complete = len(told) == len(self.parts)
        unsettled = complete and self.verdict is Verdict.OPEN
        words = "not settled by the seeds" if unsettled else self.verdict.value
        if not any(told):
            return words
        return f"{words}, {'' if all(told) else 'in part '}on a stand-in"

    def count(self, verdict: Verdict) -> int:
        """Return how many parts have this verdict."""
        return sum(part.verdict == verdict for part in self.parts)
