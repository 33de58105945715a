"""The workers of one call, what they are at, and what is left to do."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Protocol

from engram.errors import EngramError
from engram.runs._messages import Advanced, Died, Failed, Finished, Stopped, Told, TooLarge
from engram.runs._row import record
from engram.runs._step_files import write_steps
from engram.runs._worker import Worker

if TYPE_CHECKING:
    from engram.protocol import Outcome, Progress
    from engram.runs._checkpoints import Checkpoints, Place
    from engram.runs._laboratory import Run
    from engram.runs._store import Store
    from engram.runs._units import Unit

_TICK = 0.2  # seconds between two looks at Ctrl-C


class Listener(Protocol):
    """Who is told how the work goes."""

    def advanced(self, unit: Unit, progress: Progress) -> None:
        """Hear that a unit has come this far."""

    def told(self, unit: Unit, line: str) -> None:
        """Hear what there is to say of a unit."""

    def cut(self, unit: Unit, line: str) -> None:
        """Hear that a unit begins anew in parts, and what there is to say of it."""

    def ended(self, unit: Unit, failure: str | None) -> None:
        """Hear that a unit is stored, or has failed for the reason given."""


class Shift:
    """The workers, what they are at, and what is left to do."""

    def __init__(
        self,
        store: Store,
        run: Run,
        device: str,
        command: str,
        listener: Listener,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._store, self._run, self._device = store, run, device
        self._command, self._listener, self._checkpoints = command, listener, checkpoints
        self._places: dict[Unit, Place] = {}
        self._died: set[Unit] = set()
        self._wholes: dict[Unit, Unit] = {}  # of a part that was cut off
        self.pending: deque[Unit] = deque()
        self.crew: list[Worker] = []
        self.failures = 0
        self.stopping = False

    @property
    def busy(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self.pending) or any(worker.unit for worker in self.crew)

    def hand_out(self) -> None:
        """Give every core a unit, in place of dead workers and before new ones are started."""
        for worker in [worker for worker in self.crew if not (worker.unit or worker.alive)]:
            worker.kill()
            self.crew.remove(worker)
        idle = [worker for worker in self.crew if worker.unit is None]
        while self.pending and (idle or len(self.crew) < crew_size(self._device)):
            if not idle:
                self.crew.append(Worker(self._run, device=self._device))
                idle.append(self.crew[-1])
            unit = self.pending.popleft()
            if self._checkpoints is not None and unit not in self._places:
                self._places[unit] = self._checkpoints.place(unit, self._device)
            idle.pop().assign(unit, self._places.get(unit))

    def stop(self) -> None:
        """Hand out nothing more, and let the workers save what they are at."""
        self.stopping = True
        self.pending.clear()
        for worker in self.crew:
            worker.stop()

    def heard(self) -> list[Worker]:
        """Wait for messages, for a moment; return the workers that have one."""
        ready = wait([worker.pipe for worker in self.crew if worker.unit], timeout=_TICK)
        return [worker for worker in self.crew if worker.pipe in ready]

    def attend(self, workers: Sequence[Worker]) -> None:
        """Take a message of each of these workers."""
        for worker in workers:
            self._take(worker)

    def _take(self, worker: Worker) -> None:
        unit, message = worker.unit, worker.receive()
        assert unit is not None
        if isinstance(message, Advanced):
            self._listener.advanced(unit, message.progress)
            return
        if isinstance(message, Told):
            self._listener.told(unit, message.line)
            return
        worker.unit = None
        if isinstance(message, Finished):
            self._end(unit, self._keep(unit, message.outcomes))
        elif isinstance(message, Failed):
            self._end(unit, message.reason)
        elif self.stopping:
            return  # the next command goes on with it
        elif isinstance(message, TooLarge):
            worker.kill()  # whatever it still holds of the unit's memory
            self._cut(unit, message.reason)
        else:
            self._again(unit, message)

    def _again(self, unit: Unit, message: Stopped | Died) -> None:
        """Run a unit again that somebody stopped, or, once, one whose process died."""
        if isinstance(message, Died):
            if unit in self._died:
                self._end(unit, message.reason)
                return
            self._died.add(unit)
            self._listener.told(unit, f"{message.reason} It is run again.")
        self.pending.appendleft(unit)

    def _cut(self, unit: Unit, reason: str) -> None:
        """Run a unit's runs in two parts; end it if it has one run, or is saved as a whole.

        Where one run has too little memory, so have the other parts of what it was cut from.
        """
        whole = self._wholes.pop(unit, unit)
        if unit in self._places and self._places[unit].path.exists():
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

    def _keep(self, unit: Unit, outcomes: Sequence[Outcome]) -> str | None:
        """Store what came of a unit, then remove its checkpoint; or return what is wrong with it.

        Where all its runs have diverged the last good checkpoint stays for a while.
        """
        try:
            rows = [
                record(spec, outcome, self._command)
                for spec, outcome in zip(unit.specs, outcomes, strict=True)
            ]
            for row, outcome in zip(rows, outcomes, strict=True):
                if outcome.steps is not None:  # before the row, which says that they are there
                    write_steps(row.address, self._store.path, outcome.steps)
        except EngramError as error:
            return str(error)
        self._store.add(rows)
        if unit in self._places and any(outcome.failure is None for outcome in outcomes):
            self._places[unit].remove()
        return None

    def _end(self, unit: Unit, failure: str | None) -> None:
        self.failures += failure is not None
        self._listener.ended(unit, failure)


def crew_size(device: str) -> int:
    """Return how many workers train side by side on a device."""
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):  # the cores this process may use, where a system can say
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
