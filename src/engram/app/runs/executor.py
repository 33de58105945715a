"""What is left to compute, in units that workers take, and how they are trained and stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from engram.app.runs.checkpoints import Checkpoints
from engram.app.runs.checks import check_interval
from engram.app.runs.interrupts import Interrupt
from engram.app.runs.pool import WorkerPool
from engram.app.runs.rows import address, record
from engram.app.runs.step_files import write_steps
from engram.app.runs.worker import Advanced, Died, Failed, Finished, Message, Stopped, TooLarge
from engram.errors import EngramError

if TYPE_CHECKING:
    from pathlib import Path

    from engram.app.runs.store import Store
    from engram.app.runs.worker import Event, Run
    from engram.lab.protocol import Checkpoint, Outcome, Progress, Spec


@dataclass(frozen=True, eq=False)
class Unit:
    """Runs, each a spec and a seed, that one worker trains in one call."""

    runs: tuple[tuple[Spec, int], ...]
    record_every: int = 0  # what every so many steps are made of is recorded; 0: of none
    deterministic: bool = False  # whether a GPU is to have the same bits each time

    def part(self, start: int, stop: int) -> Unit:
        """Return the unit of some of its runs."""
        return replace(self, runs=self.runs[start:stop])

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The spec of each run."""
        return tuple(spec for spec, _ in self.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each run."""
        return tuple(seed for _, seed in self.runs)

    @property
    def name(self) -> str:
        """What a user knows it by."""
        method, count = self.specs[0].method, len(self.runs)
        if count == 1:
            return f"{method}, seed {self.seeds[0]}"
        alike = all(spec == self.specs[0] for spec in self.specs)
        return f"{method}, {count} {'seeds' if alike else 'runs'}"


def plan_units(
    specs: Sequence[Spec],
    seeds: Sequence[int],
    store: Store,
    *,
    device: str,
    again: bool = False,
    record_every: int = 0,
    deterministic: bool = False,
) -> list[Unit]:
    """Return the units that the store has no results of: one per run, or as large as stacks are.

    A stack has several seeds, and several specs where those may differ in one. With ``again``
    everything is computed whatever the store has, with ``record_every`` what it has no step
    records of.
    """
    from engram.lab import protocol

    stacks: dict[Hashable, list[tuple[Spec, int]]] = {}
    for spec in specs:
        identity = spec.identity()
        missing = [
            (spec, seed)
            for seed in seeds
            if again or not _has(store, address(identity, seed), steps=record_every > 0)
        ]
        stacks.setdefault(protocol.stack_key(spec), []).extend(missing)
    return [
        Unit(part, record_every, deterministic)
        for runs in stacks.values()
        if runs
        for part in cut_evenly(runs, protocol.stacking(runs[0][0], device)[0])
    ]


def cut_evenly(
    runs: Sequence[tuple[Spec, int]], most: int
) -> Iterator[tuple[tuple[Spec, int], ...]]:
    """Cut runs into as few parts as possible, none much larger than another.

    Without the first part the others stay as they are: a command that is given again finds them,
    and what was saved of them.
    """
    while runs:
        count = -(-len(runs) // most)
        size = -(-len(runs) // count)
        yield tuple(runs[:size])
        runs = runs[size:]


def _has(store: Store, address: str, *, steps: bool) -> bool:
    row = store.newest(address)
    return row is not None and (not steps or "recorded_steps" in row.outcome["facts"])


class Listener(Protocol):
    """Who follows how the work goes."""

    def advanced(self, unit: Unit, progress: Progress) -> None:
        """Take note that a unit has come this far."""

    def message(self, unit: Unit, line: str) -> None:
        """Take a line about a unit, for the user."""

    def cut(self, unit: Unit, line: str) -> None:
        """Take note that a unit begins anew in parts, and a line about it."""

    def ended(self, unit: Unit, failure: str | None) -> None:
        """Take note that a unit is stored, or has failed for the reason given."""


def execute(
    units: Sequence[Unit],
    store: Store,
    run: Run,
    *,
    device: str,
    command: str,
    listener: Listener,
    checkpoint_every: float = 0.0,
) -> int:
    """Train the units in worker processes and store their results; return how many failed.

    ``run`` is `engram.lab.protocol.run`, or another function of a module that workers can import.
    On a CPU there are as many workers as cores, of one thread each; on a GPU there is one. Only
    this process writes the store. A unit that fails leaves the others alone; one whose process
    dies is run once more. Units are saved every ``checkpoint_every`` seconds; 0: never.

    Ctrl-C and SIGTERM let the workers save their units, raise KeyboardInterrupt or Terminated, and
    leave what is finished stored; a second one does not wait.
    """
    check_interval(checkpoint_every)
    checkpoints = Checkpoints(store, checkpoint_every) if checkpoint_every else None
    if units:
        store.check_writable()
    if checkpoints is not None:
        checkpoints.remove_stale()
        if units:
            checkpoints.make_folder()
        units = [part for unit in units for part in checkpoints.parted(unit, device)]
    work = _Work(units, store, device, command, listener, checkpoints)
    with WorkerPool(run, device) as pool, Interrupt() as interrupt:
        while work.pending or pool.busy:
            while work.pending and pool.has_room and not interrupt.seen:
                unit = work.pending.popleft()
                pool.dispatch(unit, work.checkpoint(unit))
            events = pool.poll()
            if interrupt.seen and not work.stopping:  # before them: a worker may have died of it
                work.stop()
                pool.stop()
            for unit, event in events:
                work.handle(unit, event)
    return work.failures


def keep(unit: Unit, outcomes: Sequence[Outcome], store: Store, command: str) -> str | None:
    """Store what came of a unit, or return what is wrong with it."""
    try:
        rows = [
            record(spec, outcome, command)
            for spec, outcome in zip(unit.specs, outcomes, strict=True)
        ]
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome.steps is not None:  # before the row, which says that they are there
                write_steps(row.address, store.path, outcome.steps)
    except EngramError as error:
        return str(error)
    store.add(rows)
    return None


class _Work:
    """The units that are left, and what is done about each event of the current ones."""

    def __init__(
        self,
        units: Sequence[Unit],
        store: Store,
        device: str,
        command: str,
        listener: Listener,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.pending = deque(units)
        self.failures = 0
        self.stopping = False
        self._store, self._device, self._command = store, device, command
        self._listener, self._checkpoints = listener, checkpoints
        self._paths: dict[Unit, Path] = {}  # where units that have begun are saved
        self._died: set[Unit] = set()
        self._wholes: dict[Unit, Unit] = {}  # of a part that was cut off

    def checkpoint(self, unit: Unit) -> Checkpoint | None:
        """Return the checkpoint of a unit that is to begin or to go on, if it is to have one."""
        if self._checkpoints is None:
            return None
        if unit not in self._paths:
            self._paths[unit] = self._checkpoints.path(unit, self._device)
        return self._checkpoints.begin(self._paths[unit])

    def stop(self) -> None:
        """Begin nothing more: the next command goes on with what is left."""
        self.stopping = True
        self.pending.clear()

    def handle(self, unit: Unit, event: Event) -> None:
        """Pass on how far a unit is, store what came of it, or see to what went wrong."""
        if isinstance(event, Advanced):
            self._listener.advanced(unit, event.progress)
        elif isinstance(event, Message):
            self._listener.message(unit, event.line)
        elif isinstance(event, Finished):
            self._finish(unit, event.outcomes)
        elif isinstance(event, Failed):
            self._end(unit, event.reason)
        elif self.stopping:
            return  # the next command goes on with it
        elif isinstance(event, TooLarge):
            self._cut(unit, event.reason)
        else:
            self._again(unit, event)

    def _finish(self, unit: Unit, outcomes: Sequence[Outcome]) -> None:
        """Store results, then remove the checkpoint; where all diverged it stays for a while."""
        failure = keep(unit, outcomes, self._store, self._command)
        useful = failure is None and any(outcome.failure is None for outcome in outcomes)
        if self._checkpoints is not None and useful:
            self._checkpoints.remove(self._paths[unit])
        self._end(unit, failure)

    def _again(self, unit: Unit, event: Stopped | Died) -> None:
        """Run a unit again that somebody stopped, or, once, one whose process died."""
        if isinstance(event, Died):
            if unit in self._died:
                self._end(unit, event.reason)
                return
            self._died.add(unit)
            self._listener.message(unit, f"{event.reason} It is run again.")
        self.pending.appendleft(unit)

    def _cut(self, unit: Unit, reason: str) -> None:
        """Run a unit's runs in two parts; end it if it has one run, or is saved as a whole.

        Where one run has too little memory, so have the other parts of what it was cut from.
        """
        whole = self._wholes.pop(unit, unit)
        if unit in self._paths and self._paths[unit].exists():
            kept = "What was saved stays; fewer seeds at a time need less memory."
            self._end(unit, f"{reason} {kept}")
        elif len(unit.runs) == 1:
            others = [part for part in self.pending if self._wholes.get(part) is whole]
            for part in (unit, *others):
                self._end(part, reason)
            self.pending = deque(part for part in self.pending if part not in others)
        else:
            line = "the GPU has too little memory for all at once. They are trained in two parts."
            self._listener.cut(unit, line)
            count, middle = len(unit.runs), -(-len(unit.runs) // 2)
            for part in (unit.part(middle, count), unit.part(0, middle)):
                self._wholes[part] = whole
                self.pending.appendleft(part)

    def _end(self, unit: Unit, failure: str | None) -> None:
        self.failures += failure is not None
        self._listener.ended(unit, failure)
