"""One worker: a process that trains units and dies with its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engram.errors import EngramError
from engram.runs._row import printable

if TYPE_CHECKING:
    from engram.protocol import Outcome, Progress
    from engram.runs._laboratory import Run
    from engram.runs._units import Unit

_INTERVAL = 0.1  # seconds between two reports of progress
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Advanced(NamedTuple):
    """A worker's word on how far it is."""

    progress: Progress


class Finished(NamedTuple):
    """A worker's results."""

    outcomes: list[Outcome]


class Failed(NamedTuple):
    """A worker's error, in one sentence."""

    reason: str


class Worker:
    """The parent's end: starts the process, hands it units, receives its messages."""

    def __init__(self, run: Run, *, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.unit: Unit | None = None
        self.pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, run, device), daemon=True)
        with _inherited(one_thread=device == "cpu"):
            self._process.start()
        child.close()  # so that a dead worker is an end of file

    def assign(self, unit: Unit) -> None:
        """Let the worker train a unit."""
        self.unit = unit
        with suppress(OSError):  # it has just died, and receive() will say so
            self.pipe.send(unit)

    def receive(self) -> Advanced | Finished | Failed:
        """Return the worker's next message; a dead worker has failed."""
        try:
            message: Advanced | Finished | Failed = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(timeout=5)
            return Failed(_last_words(self._process.exitcode))
        return message

    @property
    def alive(self) -> bool:
        """Whether it can take another unit."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End the process; it holds nothing that is worth a farewell."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection, run: Run, device: str) -> None:
    os.dup2(2, 1)  # whatever a library prints must not mix with the parent's JSON
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            unit: Unit = pipe.recv()
        except EOFError:
            return
        pipe.send(_train(pipe, run, unit, device))


def _train(pipe: Connection, run: Run, unit: Unit, device: str) -> Finished | Failed:
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _INTERVAL:
            pipe.send(Advanced(progress))
            last = now

    try:
        return Finished(run(unit.spec, unit.seeds, device=device, progress=report))
    except EngramError as error:
        return Failed(printable(str(error)))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Failed(printable(f"{type(error).__name__} at {where}: {error}"))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _last_words(code: int | None) -> str:
    if code is not None and code < 0:
        return f"The worker was killed by {signal.Signals(-code).name}: too little memory, perhaps."
    return f"The worker died with exit code {code}."


@contextmanager
def _inherited(*, one_thread: bool) -> Iterator[None]:
    """Set what a process started inside inherits: no Ctrl-C of its own and, on a CPU, one thread.

    It must hold before the child imports torch, so it cannot be left to the child.
    """
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    before = {name: os.environ.get(name) for name in _THREADS}
    try:
        if one_thread:
            os.environ.update(dict.fromkeys(_THREADS, "1"))
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if in_main:
            signal.signal(signal.SIGINT, handler)
