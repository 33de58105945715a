"""What is left to compute, in units that workers take, and how they are trained and stored."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

from engram.app.runs.checkpoints import Checkpoints
from engram.app.runs.checks import check_interval
from engram.app.runs.cluster import LOCAL, Cluster
from engram.app.runs.interrupts import Interrupt
from engram.app.runs.rows import Row, address, record
from engram.app.runs.step_files import write_steps
from engram.app.runs.worker import (
    Advanced,
    Died,
    Failed,
    Finished,
    Lost,
    Message,
    Stopped,
    TooLarge,
    Unfit,
)
from engram.errors import EngramError

if TYPE_CHECKING:
    from pathlib import Path

    from engram.app.runs.store import Store
    from engram.app.runs.worker import Event, Run
    from engram.lab.protocol import Checkpoint, Outcome, Progress, Spec

_STORING = 10  # times as long as storing took, it is not done again
_LONGEST = 1.0  # seconds that it is put off for
_MOST_LOSSES = 5  # machines in a row that may be lost under a unit that gets no further


@dataclass(frozen=True, eq=False)
class Unit:
    """Runs, each a spec and a seed, that one worker trains in one call."""

    runs: tuple[tuple[Spec, int], ...]
    record_every: int = 0  # what every so many steps are made of is recorded; 0: of none
    deterministic: bool = False  # whether a GPU is to have the same bits each time
    held: tuple[int, ...] = ()  # how many results of each run the store had; none unless given

    def part(self, start: int, stop: int) -> Unit:
        """Return the unit of some of its runs."""
        return replace(self, runs=self.runs[start:stop], held=self.held[start:stop])

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
    workers: int = 1,
) -> list[Unit]:
    """Return the units that the store has no results of: one per run, or as large as stacks are.

    A stack has several seeds, and several specs where those may differ in one. Stacks are smaller
    where some of the ``workers`` would be left without one, unless they are ``deterministic``: the
    last bits of a run may depend on the size of its stack. With ``again`` everything is computed
    whatever the store has, with ``record_every`` what it has no step records of.
    """
    from engram.lab import protocol

    stacks: dict[Hashable, list[tuple[tuple[Spec, int], int]]] = {}
    for spec in specs:
        identity = spec.identity()
        alike = stacks.setdefault(protocol.stack_key(spec), [])
        for seed in seeds:
            place = address(identity, seed)
            held = store.count(place)
            if again or not held or not _has(store, place, steps=record_every > 0):
                alike.append(((spec, seed), held))
    wanted = sum(map(len, stacks.values()))
    share = wanted if deterministic else math.ceil(wanted / workers)
    most = {
        key: min(protocol.stacking(runs[0][0][0], device)[0], share)
        for key, runs in stacks.items()
        if runs
    }
    return [
        Unit(
            tuple(run for run, _ in part),
            record_every,
            deterministic,
            tuple(held for _, held in part),
        )
        for key in most
        for part in cut_evenly(stacks[key], most[key])
    ]


_Run = TypeVar("_Run")


def cut_evenly(runs: Sequence[_Run], most: int) -> Iterator[tuple[_Run, ...]]:
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

    def remark(self, line: str) -> None:
        """Take a line about the workers, for the user."""

    def staffed(self, workers: int, nodes: int) -> None:
        """Take note of how many workers there are, on how many machines."""


class Executor(Protocol):
    """Where units are trained: this machine, or a cluster. All of it ends with the block."""

    @property
    def busy(self) -> bool:
        """Whether any worker has a unit."""

    @property
    def has_room(self) -> bool:
        """Whether another unit can be trained beside the current ones."""

    def dispatch(self, unit: Unit, checkpoint: Checkpoint | None) -> None:
        """Send a unit to a worker; there must be room."""

    def poll(self) -> list[tuple[Unit, Event]]:
        """Wait for events, for a moment; return them with the units that they are about."""

    def stop(self) -> None:
        """Let every worker save its unit when the current step ends, and begin none."""

    def __enter__(self) -> Executor:
        """Begin to have workers."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every worker at once, wherever it is."""


def execute(
    units: Sequence[Unit],
    store: Store,
    run: Run,
    *,
    device: str,
    command: str,
    listener: Listener,
    checkpoint_every: float = 0.0,
    cluster: Cluster = LOCAL,
) -> int:
    """Train the units in worker processes and store their results; return how many failed.

    ``run`` is `engram.lab.protocol.run`, or another function of a module that workers can import.
    Workers are on this machine unless a ``cluster`` says otherwise: on a CPU as many as cores, of
    one thread each; on a GPU one. Only this process writes the store, and a run that was planned
    once is stored once, whoever else computes it. A unit that fails leaves the others alone; one
    whose process dies is run once more, and a stack after that in parts. Units are saved every
    ``checkpoint_every`` seconds; 0: never, as on a cluster that shares no folder.

    Ctrl-C and SIGTERM let the workers save their units, raise KeyboardInterrupt or Terminated, and
    leave what is finished stored; a second one does not wait.
    """
    check_interval(checkpoint_every)
    cluster.check()
    kept = checkpoint_every and (cluster.is_local or cluster.shared is not None)
    checkpoints = Checkpoints(store, checkpoint_every, cluster.shared) if kept else None
    if units:
        store.check_writable()
    if checkpoints is not None:
        checkpoints.remove_stale()
        if units:
            checkpoints.make_folder()
        units = checkpoints.parted(units, device)
    work = _Work(units, store, device, command, listener, checkpoints)
    with cluster.open(units, run, device, listener) as pool, Interrupt() as interrupt:
        try:
            while work.pending or pool.busy:
                while work.pending and pool.has_room and not interrupt.seen:
                    unit = work.pending.popleft()
                    pool.dispatch(unit, work.checkpoint(unit))
                events = pool.poll()
                if interrupt.seen and not work.stopping:  # a worker may have died of it
                    work.stop()
                    pool.stop()
                work.handle(events)
        except BaseException:  # whoever is gone, what has come is not lost
            work.store_finished()
            raise
        work.store_finished()
    return work.failures


def keep(unit: Unit, outcomes: Sequence[Outcome], store: Store, command: str) -> str | None:
    """Store what came of a unit, or return what is wrong with it."""
    rows = _rows(unit, Finished(list(outcomes)), store, command)
    if isinstance(rows, str):
        return rows
    store.add(rows, after=_held(unit, rows))
    return None


def _rows(unit: Unit, event: Finished, store: Store, command: str) -> list[Row] | str:
    """Return the rows of what came of a unit, or what is wrong with it; write its steps."""
    if [outcome.seed for outcome in event.outcomes] != list(unit.seeds):
        return "The results are those of other seeds."
    try:
        rows = [
            record(spec, outcome, command, event.versions)
            for spec, outcome in zip(unit.specs, event.outcomes, strict=True)
        ]
        for row, outcome in zip(rows, event.outcomes, strict=True):
            if outcome.steps is not None:  # before the row, which says that they are there
                write_steps(row.address, store.path, outcome.steps)
    except EngramError as error:
        return str(error)
    return rows


def _held(unit: Unit, rows: Sequence[Row]) -> dict[str, int]:
    """Return how many results the store had of each run when the unit was planned, if known."""
    places = (row.address for row in rows)
    return dict(zip(places, unit.held, strict=True)) if unit.held else {}


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
        self._died, self._lost = Counter[Unit](), Counter[Unit]()  # how often under a unit
        self._steps: dict[Unit, int] = {}  # that a unit has come to
        self._furthest: dict[Unit, int] = {}  # of them, when a machine was lost under it
        self._wholes: dict[Unit, Unit] = {}  # of a part that was cut off
        self._finished: list[tuple[Unit, Finished]] = []  # not stored yet
        self._store_next = 0.0  # when it may be, by the clock

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

    def handle(self, events: Sequence[tuple[Unit, Event]]) -> None:
        """Pass on how far units are, store what came of them, or see to what went wrong."""
        for unit, event in events:
            if isinstance(event, Finished):
                self._finished.append((unit, event))
            else:
                self._see_to(unit, event)
        if self._finished and time.monotonic() >= self._store_next:
            self.store_finished()

    def store_finished(self) -> None:
        """Store what has come, in one transaction, and let the listener know.

        Each transaction waits for the disk: while results come faster than that, as from a thousand
        workers, they wait for each other, so that no more than a small share of the time is spent;
        but none for longer than a second.
        """
        finished, self._finished = self._finished, []
        if not finished:
            return
        began = time.monotonic()
        failures: list[str | None] = []
        all_rows, all_held = list[Row](), dict[str, int]()
        for unit, event in finished:
            rows = _rows(unit, event, self._store, self._command)
            failures.append(rows if isinstance(rows, str) else None)
            if not isinstance(rows, str):
                all_rows += rows
                all_held |= _held(unit, rows)
        if all_rows:
            self._store.add(all_rows, after=all_held)
        now = time.monotonic()
        self._store_next = now + min(_LONGEST, _STORING * (now - began))
        for (unit, event), failure in zip(finished, failures, strict=True):
            self._finish(unit, event.outcomes, failure)

    def _see_to(self, unit: Unit, event: Event) -> None:
        if isinstance(event, Advanced):
            self._steps[unit] = event.progress.step
            self._listener.advanced(unit, event.progress)
        elif isinstance(event, Message):
            self._listener.message(unit, event.line)
        elif isinstance(event, Failed):
            self._end(unit, event.reason)
        elif self.stopping:
            return  # the next command goes on with it
        elif isinstance(event, TooLarge):
            self._cut(unit, event.reason)
        elif isinstance(event, Stopped | Died | Lost | Unfit):
            self._again(unit, event)

    def _finish(self, unit: Unit, outcomes: Sequence[Outcome], failure: str | None) -> None:
        """Remove the checkpoint of what is stored; where all diverged it stays for a while."""
        useful = failure is None and any(outcome.failure is None for outcome in outcomes)
        if self._checkpoints is not None and useful:
            self._checkpoints.remove(self._paths[unit])
        self._end(unit, failure)

    def _again(self, unit: Unit, event: Stopped | Died | Lost | Unfit) -> None:
        """Run a unit again that somebody stopped, or, once, one whose process died.

        One whose machine was lost is run again as long as it gets further each time, else a few
        times: machines come and go, but it may also be the unit that takes them down.
        """
        if isinstance(event, Lost) and self._steps.get(unit, 0) > self._furthest.get(unit, 0):
            self._furthest[unit] = self._steps[unit]
            del self._lost[unit]
        if isinstance(event, Died | Lost):
            kind, most = (self._died, 2) if isinstance(event, Died) else (self._lost, _MOST_LOSSES)
            kind[unit] += 1
            if kind[unit] >= most:
                self._set_aside(unit, event.reason)
                return
            self._listener.message(unit, f"{event.reason} It is run again.")
        self.pending.appendleft(unit)

    def _set_aside(self, unit: Unit, reason: str) -> None:
        """End a run under which its workers die; of a stack, find out which it is."""
        if len(unit.runs) == 1:
            self._end(unit, reason)
        else:
            self._halve(unit, f"{reason} Its runs are trained in two parts.")

    def _cut(self, unit: Unit, reason: str) -> None:
        """Run a unit's runs in two parts; end it if it has one run, or is saved as a whole.

        Where one run has too little memory, so have the other parts of what it was cut from.
        """
        whole = self._wholes.pop(unit, unit)
        if self._is_saved(unit):
            kept = "What was saved stays; fewer seeds at a time need less memory."
            self._end(unit, f"{reason} {kept}")
        elif len(unit.runs) == 1:
            others = [part for part in self.pending if self._wholes.get(part) is whole]
            for part in (unit, *others):
                self._end(part, reason)
            self.pending = deque(part for part in self.pending if part not in others)
        else:
            line = "the GPU has too little memory for all at once. They are trained in two parts."
            for part in self._halve(unit, line):
                self._wholes[part] = whole

    def _halve(self, unit: Unit, line: str) -> tuple[Unit, Unit]:
        """Let a unit begin anew in two parts, and return them."""
        self._listener.cut(unit, line)
        count, middle = len(unit.runs), -(-len(unit.runs) // 2)
        parts = unit.part(0, middle), unit.part(middle, count)
        self.pending.extendleft(reversed(parts))
        return parts

    def _is_saved(self, unit: Unit) -> bool:
        if self._checkpoints is None or unit not in self._paths:
            return False
        return self._checkpoints.saved(self._paths[unit])

    def _end(self, unit: Unit, failure: str | None) -> None:
        self.failures += failure is not None
        self._listener.ended(unit, failure)
