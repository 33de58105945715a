"""One worker: a process that trains units and dies with its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from engram.runs._messages import Died, Message
from engram.runs._service import serve

if TYPE_CHECKING:
    from engram.runs._checkpoints import Place
    from engram.runs._laboratory import Run
    from engram.runs._units import Unit

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Worker:
    """The parent's end: starts the process, hands it units, receives its messages."""

    def __init__(self, run: Run, *, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.unit: Unit | None = None
        self.pipe, child = context.Pipe()
        self._process = context.Process(target=serve, args=(child, run, device), daemon=True)
        with _inherited(one_thread=device == "cpu"):
            self._process.start()
        child.close()  # so that a dead worker is an end of file

    def assign(self, unit: Unit, place: Place | None) -> None:
        """Let the worker train a unit, and save it in its place."""
        self.unit = unit
        with suppress(OSError):  # it has just died, and receive() will say so
            self.pipe.send((unit, place))

    def receive(self) -> Message:
        """Return the worker's next message; of a dead worker, that it died."""
        try:
            message: Message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(timeout=5)
            return Died(_last_words(self._process.exitcode))
        return message

    def stop(self) -> None:
        """Let it save its unit when the step in hand ends; one that has none, or no place, dies."""
        self._process.terminate()

    @property
    def alive(self) -> bool:
        """Whether it can take another unit."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End the process; it holds nothing that is worth a farewell."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _last_words(code: int | None) -> str:
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
