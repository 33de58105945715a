"""How far all units are together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from engram import runs

if TYPE_CHECKING:
    from engram.protocol import Progress


class Pace:
    """Counts steps of single runs: a stack of five seeds takes five at a time.

    The time left supposes that every run takes about as long as the others.
    """

    def __init__(
        self, units: Sequence[runs.Unit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.runs = sum(len(unit.seeds) for unit in units)
        self.ended = 0
        self._clock = clock
        self._started = clock()
        self._steps: dict[runs.Unit, int] = {}
        self._shares: dict[runs.Unit, float] = {}

    def advance(self, unit: runs.Unit, progress: Progress) -> None:
        """Note how far a unit is."""
        self._steps[unit] = progress.step * len(unit.seeds)
        self._shares[unit] = progress.step / progress.steps * len(unit.seeds)

    def end(self, unit: runs.Unit) -> None:
        """Note that a unit has ended, well or not."""
        self.ended += len(unit.seeds)
        self._shares[unit] = len(unit.seeds)

    @property
    def share(self) -> float:
        """How much of all the work is done, from 0 to 1."""
        return sum(self._shares.values()) / self.runs

    def __str__(self) -> str:
        elapsed = max(self._clock() - self._started, 1e-9)
        speed = f"{sum(self._steps.values()) / elapsed:,.0f} steps/s"
        if self.share == 0:
            return speed
        left = timedelta(seconds=round(elapsed * (1 - self.share) / self.share))
        return f"{speed}, {left} left"
