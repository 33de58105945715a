"""How far all units are together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from engram import runs

if TYPE_CHECKING:
    from engram.protocol import Progress


_ENOUGH = 0.05, 10.0  # of all the work, or seconds: the time left is not told from less


class Pace:
    """Counts steps of single runs: a stack of five seeds takes five at a time.

    The time left supposes that every run takes about as long as the others. It is reckoned from
    the first report on: until then data is loaded and steps are compiled.
    """

    def __init__(
        self, units: Sequence[runs.Unit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.runs = sum(len(unit.seeds) for unit in units)
        self.ended = 0
        self._clock = clock
        self._started = clock()
        self._first: tuple[float, float] | None = None  # the share and the time of the first report
        self._steps: dict[runs.Unit, int] = {}
        self._shares: dict[runs.Unit, float] = {}

    def advance(self, unit: runs.Unit, progress: Progress) -> None:
        """Note how far a unit is."""
        self._steps[unit] = progress.step * len(unit.seeds)
        self._shares[unit] = progress.step / progress.steps * len(unit.seeds)
        self._first = self._first or (self.share, self._clock())

    def forget(self, unit: runs.Unit) -> None:
        """Take back what was noted of a unit, and reckon from the next report on."""
        self._steps.pop(unit, None)
        self._shares.pop(unit, None)
        self._first = None

    def end(self, unit: runs.Unit) -> None:
        """Note that a unit has ended, well or not."""
        self.ended += len(unit.seeds)
        self._shares[unit] = len(unit.seeds)
        self._first = self._first or (self.share, self._clock())

    @property
    def share(self) -> float:
        """How much of all the work is done, from 0 to 1."""
        return sum(self._shares.values()) / self.runs

    def __str__(self) -> str:
        now = self._clock()
        elapsed = max(now - self._started, 1e-9)
        speed = f"{sum(self._steps.values()) / elapsed:,.0f} steps/s"
        left = self._left(now)
        return speed if left is None else f"{speed}, {left} left"

    def _left(self, now: float) -> timedelta | None:
        """Return the time left, or None while too little is done to tell."""
        share, since = self._first or (0.0, now)
        done, seconds = self.share - share, now - since
        if done <= 0 or (done < _ENOUGH[0] and seconds < _ENOUGH[1]):
            return None
        return timedelta(seconds=round(seconds * (1 - self.share) / done))
