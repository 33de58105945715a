"""The parent's side of its worker processes: they are started, sent units, listened to, ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from types import TracebackType
from typing import TYPE_CHECKING

from engram.app.runs.worker import INTERVAL, Advanced, Began, Died, Event, Message, TooLarge, serve

if TYPE_CHECKING:
    from engram.app.runs.executor import Unit
    from engram.app.runs.worker import Run
    from engram.lab.protocol import Checkpoint

_TICK = 0.2  # seconds between two looks at Ctrl-C
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerPool:
    """Worker processes that train units: on a CPU one for each core, on a GPU a single one.

    They are started when they are needed, and all of them are ended with the block.
    """

    def __init__(self, run: Run, device: str) -> None:
        self._run, self._device = run, device
        self._size = pool_size(device)
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.kill()

    @property
    def busy(self) -> bool:
        """Whether any worker has a unit."""
        return any(worker.unit for worker in self._workers)

    @property
    def has_room(self) -> bool:
        """Whether another unit can be trained beside the current ones."""
        return sum(worker.unit is not None for worker in self._workers) < self._size

    def dispatch(self, unit: Unit, checkpoint: Checkpoint | None) -> None:
        """Send a unit to an idle worker, or to a new one where there is none that is alive."""
        for worker in [each for each in self._workers if not (each.unit or each.alive)]:
            self._end(worker)
        idle = [worker for worker in self._workers if worker.unit is None]
        if not idle:
            idle = [WorkerProcess(self._run, self._device)]
            self._workers += idle
        idle[-1].unit = unit
        with suppress(OSError):  # it has just died, and poll() will say so
            idle[-1].pipe.send((unit, checkpoint))

    def poll(self) -> list[tuple[Unit, Event]]:
        """Wait for events, for a moment; return them with the units that they are about."""
        ready = wait([worker.pipe for worker in self._workers if worker.unit], timeout=_TICK)
        events: list[tuple[Unit, Event]] = []
        for worker in [each for each in self._workers if each.unit and each.pipe in ready]:
            unit, event = worker.unit, worker.receive()
            assert unit is not None
            events.append((unit, event))
            if not isinstance(event, Began | Advanced | Message):
                worker.unit = None
            if isinstance(event, TooLarge):
                self._end(worker)  # whatever it still holds of the unit's memory
        return events

    def stop(self) -> None:
        """Let every worker save its unit when the current step ends; those without one die."""
        for worker in self._workers:
            worker.stop()

    def _end(self, worker: WorkerProcess) -> None:
        worker.kill()
        self._workers.remove(worker)


class WorkerProcess:
    """One process, the pipe to it, and the unit that it was sent.

    It reports its progress every ``interval`` seconds.
    """

    def __init__(self, run: Run, device: str, interval: float = INTERVAL) -> None:
        context = multiprocessing.get_context("spawn")
        self.unit: Unit | None = None
        self.pipe, child = context.Pipe()
        self._process = context.Process(
            target=serve, args=(child, run, device, interval), daemon=True
        )
        with _inherited(one_thread=device == "cpu"):
            self._process.start()
        child.close()  # so that a dead worker is an end of file

    @property
    def alive(self) -> bool:
        """Whether it can take another unit."""
        return self._process.is_alive()

    def receive(self) -> Event:
        """Return the worker's next event; of a dead worker, that it died."""
        try:
            event: Event = self.pipe.recv()
        except (EOFError, OSError):
            return Died(self.cause_of_death())
        return event

    def cause_of_death(self) -> str:
        """Return what became of a process whose pipe has ended, in one sentence."""
        self._process.join(timeout=5)
        return _cause_of_death(self._process.exitcode)

    def stop(self) -> None:
        """Let it save its unit when the current step ends; one that has nothing to save dies."""
        self._process.terminate()

    def kill(self) -> None:
        """End the process at once: it holds nothing that is not saved or sent."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def pool_size(device: str) -> int:
    """Return how many workers train side by side on a device."""
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):  # the cores this process may use, where a system can say
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cause_of_death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "The worker was killed by SIGKILL: too little memory, perhaps."
    if code is not None and code < 0:
        return f"The worker was killed by {signal.Signals(-code).name}."
    return f"The worker died with exit code {code}."


@contextmanager
def _inherited(*, one_thread: bool) -> Iterator[None]:
    """Set what a process started inside inherits: no Ctrl-C of its own and, on a CPU, one thread.

    It must hold before the child imports torch, so it cannot be left to the child.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    try:
        if one_thread:
            os.environ.update(dict.fromkeys(_THREADS, "1"))
        with _ctrl_c_held_back():
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Let Ctrl-C wait: one that is ignored, which children inherit as well, would be lost."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where nothing of it is inherited
        yield
        return
    resource_tracker.ensure_running()  # else it is started inside, and lets Ctrl-C through
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
