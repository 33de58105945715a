"""How the work goes, on stderr: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from engram.app import runs
from engram.app.cli.console import count, stderr_bars
from engram.app.cli.process import on_stop

if TYPE_CHECKING:
    from engram.lab.protocol import Progress as Step

_SECONDS_BETWEEN_LINES = 10.0
_MOST_BARS = 8  # of single units; more of them only flicker
_ENOUGH = 0.05, 10.0  # of all the work, or seconds: the time left is not shown from less


@contextmanager
def training(
    units: Sequence[runs.Unit], checkpoint_every: float, cluster: runs.Cluster = runs.LOCAL
) -> Iterator[runs.Listener]:
    """Yield the listener that suits stderr; if the work is stopped, say what becomes of it."""
    saved = checkpoint_every and (cluster.is_local or cluster.shared is not None)
    rest = "goes on from where the rest was saved" if saved else "does the rest"
    message = f"Stopped: what is finished is stored, and the same command {rest}."
    with on_stop(message), _listener(units) as listener:
        yield listener


@contextmanager
def _listener(units: Sequence[runs.Unit]) -> Iterator[runs.Listener]:
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
        self.staff = ""  # how many workers there are, if they are not this machine's
        self._clock = clock
        self._started = clock()
        self._first: tuple[float, float] | None = None  # the share and the time of the first report
        self._steps: dict[runs.Unit, int] = {}
        self._shares: dict[runs.Unit, float] = {}
        self._all_steps, self._all_shares = 0, 0.0  # their sums: there may be thousands of units

    def advance(self, unit: runs.Unit, progress: Step) -> None:
        """Note how far a unit is."""
        runs_ = len(unit.seeds)
        self._note(unit, progress.step * runs_, progress.step / progress.steps * runs_)
        self._first = self._first or (self.share, self._clock())

    def forget(self, unit: runs.Unit) -> None:
        """Take back what was noted of a unit, and reckon from the next report on."""
        self._note(unit, 0, 0.0)
        self._first = None

    def end(self, unit: runs.Unit) -> None:
        """Note that a unit has ended, well or not."""
        self.ended += len(unit.seeds)
        self._note(unit, self._steps.get(unit, 0), len(unit.seeds))
        self._first = self._first or (self.share, self._clock())

    def _note(self, unit: runs.Unit, steps: int, share: float) -> None:
        self._all_steps += steps - self._steps.get(unit, 0)
        self._all_shares += share - self._shares.get(unit, 0.0)
        self._steps[unit], self._shares[unit] = steps, share

    @property
    def share(self) -> float:
        """How much of all the work is done, from 0 to 1."""
        return min(max(self._all_shares / self.runs, 0.0), 1.0)

    def __str__(self) -> str:
        now = self._clock()
        elapsed = max(now - self._started, 1e-9)
        speed = f"{self._all_steps / elapsed:,.0f} steps/s"
        left = self._left(now)
        parts = [speed, f"{left} left" if left is not None else "", self.staff]
        return ", ".join(filter(None, parts))

    def staffed(self, workers: int, nodes: int) -> str:
        """Note how many workers there are, and return it in words."""
        self.staff = f"{count(workers, 'worker')} on {count(nodes, 'node')}"
        return self.staff

    def _left(self, now: float) -> timedelta | None:
        """Return the time left, or None while too little is done to tell."""
        share, since = self._first or (0.0, now)
        done, seconds = self.share - share, now - since
        if done <= 0 or (done < _ENOUGH[0] and seconds < _ENOUGH[1]):
            return None
        return timedelta(seconds=round(seconds * (1 - self.share) / done))


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

    def message(self, unit: runs.Unit, line: str) -> None:
        """Print what there is to say."""
        self._say(f"{unit.name}: {line}")

    def cut(self, unit: runs.Unit, line: str) -> None:
        """Print why a unit begins anew in parts."""
        self._pace.forget(unit)
        self.message(unit, line)

    def ended(self, unit: runs.Unit, failure: str | None) -> None:
        """Print that a unit has ended."""
        self._pace.end(unit)
        if failure is not None:
            self._say(f"{unit.name} failed: {failure}")
        else:
            self._say(
                f"{unit.name}: stored, {self._pace.ended} of {self._pace.runs} ({self._pace})"
            )

    def remark(self, line: str) -> None:
        """Print what there is to say about the workers."""
        self._say(line)

    def staffed(self, workers: int, nodes: int) -> None:
        """Note how many workers there are; print it where there are none, or some again."""
        before, now = self._pace.staff, self._pace.staffed(workers, nodes)
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES or not before or not workers:
            self._say(now)

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

    def message(self, unit: runs.Unit, line: str) -> None:
        """Leave a line."""
        self._display.console.print(f"{unit.name}: {line}")

    def cut(self, unit: runs.Unit, line: str) -> None:
        """Take a unit's bar away; leave the line."""
        self._pace.forget(unit)
        self._remove(unit)
        self.message(unit, line)
        self._move_all()

    def ended(self, unit: runs.Unit, failure: str | None) -> None:
        """Take a unit's bar away; leave a line if it failed."""
        self._pace.end(unit)
        self._remove(unit)
        if failure is not None:
            text = f"{unit.name} failed: {failure}"
            self._display.console.print(text)
        self._move_all()

    def remark(self, line: str) -> None:
        """Leave a line about the workers."""
        self._display.console.print(line)

    def staffed(self, workers: int, nodes: int) -> None:
        """Show how many workers there are."""
        self._pace.staffed(workers, nodes)
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
