"""How the work goes, on stderr: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from engram import runs
from engram.cli._console import stderr_bars
from engram.cli._pace import Pace

if TYPE_CHECKING:
    from engram.protocol import Progress as Step

_SECONDS_BETWEEN_LINES = 10.0
_MOST_BARS = 8  # of single units; more of them only flicker


@contextmanager
def progress_listener(units: Sequence[runs.Unit]) -> Iterator[runs.Listener]:
    """Yield the listener that suits stderr."""
    if not units or not sys.stderr.isatty():
        yield Lines(Pace(units))
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[where]}", markup=False),
    )
    with stderr_bars(*columns) as display:
        yield Bars(Pace(units), display)


class Lines:
    """A line when a unit ends, and every ten seconds in between."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._last = time.monotonic()

    def advanced(self, unit: runs.Unit, progress: Step) -> None:
        """Print where a unit is, if nothing was said for a while."""
        self._pace.advance(unit, progress)
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._say(f"{unit.name}: {_where(progress)} ({self._pace})")

    def told(self, unit: runs.Unit, line: str) -> None:
        """Print what there is to say."""
        self._say(f"{unit.name}: {line}")

    def cut(self, unit: runs.Unit, line: str) -> None:
        """Print why a unit begins anew in parts."""
        self._pace.forget(unit)
        self.told(unit, line)

    def ended(self, unit: runs.Unit, failure: str | None) -> None:
        """Print that a unit has ended."""
        self._pace.end(unit)
        if failure is not None:
            self._say(f"{unit.name} failed: {failure}")
        else:
            self._say(
                f"{unit.name}: stored, {self._pace.ended} of {self._pace.runs} ({self._pace})"
            )

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        print(text, file=sys.stderr, flush=True)


class Bars:
    """A bar for each unit at work and one for all."""

    def __init__(self, pace: Pace, display: Progress) -> None:
        self._pace, self._display = pace, display
        self._bars: dict[runs.Unit, TaskID] = {}
        self._all = display.add_task(f"all {pace.runs} runs", total=1.0, where="starting")

    def advanced(self, unit: runs.Unit, progress: Step) -> None:
        """Move a unit's bar and the one for all."""
        self._pace.advance(unit, progress)
        if unit not in self._bars and len(self._bars) < _MOST_BARS:
            self._bars[unit] = self._display.add_task(unit.name, where="")
        if unit in self._bars:
            self._display.update(
                self._bars[unit],
                completed=progress.step,
                total=progress.steps,
                where=_where(progress),
            )
        self._move_all()

    def told(self, unit: runs.Unit, line: str) -> None:
        """Leave a line."""
        self._display.console.print(f"{unit.name}: {line}")

    def cut(self, unit: runs.Unit, line: str) -> None:
        """Take a unit's bar away; leave the line."""
        self._pace.forget(unit)
        self._remove(unit)
        self.told(unit, line)
        self._move_all()

    def ended(self, unit: runs.Unit, failure: str | None) -> None:
        """Take a unit's bar away; leave a line if it failed."""
        self._pace.end(unit)
        self._remove(unit)
        if failure is not None:
            text = f"{unit.name} failed: {failure}"
            self._display.console.print(text)
        self._move_all()

    def _remove(self, unit: runs.Unit) -> None:
        if unit in self._bars:
            self._display.remove_task(self._bars.pop(unit))

    def _move_all(self) -> None:
        where = f"{self._pace.ended} ended, {self._pace}"
        self._display.update(self._all, completed=self._pace.share, where=where)


def _where(progress: Step) -> str:
    return (
        f"task {progress.task + 1} of {progress.tasks}, "
        f"step {progress.step:,} of {progress.steps:,}"
    )
