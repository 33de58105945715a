"""Training of many units in parallel; results are stored as they are finished."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Protocol

from engram.errors import EngramError
from engram.runs._interrupt import Interrupt
from engram.runs._row import record
from engram.runs._worker import Advanced, Failed, Finished, Worker

if TYPE_CHECKING:
    from engram.protocol import Progress
    from engram.runs._laboratory import Run
    from engram.runs._store import Store
    from engram.runs._units import Unit

_TICK = 0.2  # seconds between two looks at Ctrl-C


class Listener(Protocol):
    """Who is told how the work goes."""

    def advanced(self, unit: Unit, progress: Progress) -> None:
        """Hear that a unit has come this far."""

    def ended(self, unit: Unit, failure: str | None) -> None:
        """Hear that a unit is stored, or has failed for the reason given."""


def execute(
    units: Sequence[Unit],
    store: Store,
    run: Run,
    *,
    device: str,
    command: str,
    listener: Listener,
) -> int:
    """Train the units in worker processes and store their results; return how many failed.

    On a CPU there are as many workers as cores, of one thread each; on a GPU there is one. Only
    this process writes the store. A unit that fails leaves the others alone. Ctrl-C ends the
    workers and raises KeyboardInterrupt; what is finished by then is stored.
    """
    pending = deque(units)
    crew: list[Worker] = []
    failures = 0
    try:
        with Interrupt() as interrupt:
            while pending or any(worker.unit for worker in crew):
                _hand_out(pending, crew, run, device)
                for worker in _speaking(crew):
                    failures += _attend(worker, store, command, listener)
                if interrupt.seen:
                    raise KeyboardInterrupt
    finally:
        for worker in crew:
            worker.kill()
    return failures


def _hand_out(pending: deque[Unit], crew: list[Worker], run: Run, device: str) -> None:
    """Give every core a unit, in place of dead workers and before new ones are started."""
    for worker in [worker for worker in crew if not (worker.unit or worker.alive)]:
        worker.kill()
        crew.remove(worker)
    idle = [worker for worker in crew if worker.unit is None]
    while pending and (idle or len(crew) < _crew_size(device)):
        if not idle:
            crew.append(Worker(run, device=device))
            idle.append(crew[-1])
        idle.pop().assign(pending.popleft())


def _crew_size(device: str) -> int:
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):  # the cores this process may use, where a system can say
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _speaking(crew: Sequence[Worker]) -> list[Worker]:
    ready = wait([worker.pipe for worker in crew if worker.unit], timeout=_TICK)
    return [worker for worker in crew if worker.pipe in ready]


def _attend(worker: Worker, store: Store, command: str, listener: Listener) -> int:
    """Take one message of a worker; return 1 if its unit has failed, else 0."""
    unit = worker.unit
    assert unit is not None
    message = worker.receive()
    if isinstance(message, Advanced):
        listener.advanced(unit, message.progress)
        return 0
    worker.unit = None
    if isinstance(message, Finished):
        try:
            rows = [record(unit.spec, outcome, command) for outcome in message.outcomes]
        except EngramError as error:
            message = Failed(str(error))
        else:
            store.add(rows)
    failure = message.reason if isinstance(message, Failed) else None
    listener.ended(unit, failure)
    return int(failure is not None)
