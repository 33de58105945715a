"""A worker's own end: it trains what it is handed, and dies with its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from engram.errors import EngramError
from engram.runs._messages import Advanced, Failed, Finished, Stopped, Told, TooLarge
from engram.runs._stamp import printable
from engram.terminal import guard_streams

if TYPE_CHECKING:
    from engram.protocol import Checkpoint, Progress
    from engram.runs._checkpoints import Place
    from engram.runs._laboratory import Run
    from engram.runs._units import Unit

_INTERVAL = 0.1  # seconds between two reports of progress
_NO_MEMORY = ("out of memory", "ALLOC_FAILED")  # as torch and Triton, cuBLAS and cuDNN put it


def serve(pipe: Connection, run: Run, device: str) -> None:
    """Train unit after unit until there is no more to hear."""
    os.dup2(2, 1)  # whatever a library prints must not mix with the parent's JSON
    sys.stdout = sys.stderr  # the other one may have been a file's, and knows nothing of it
    guard_streams()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    service = _Service(pipe, run, device)
    signal.signal(signal.SIGTERM, service.stop)
    while True:
        try:
            unit, place = pipe.recv()
        except EOFError:
            return
        pipe.send(service.train(unit, place))


class _Service:
    def __init__(self, pipe: Connection, run: Run, device: str) -> None:
        self._pipe, self._run, self._device = pipe, run, device
        self._checkpoint: Checkpoint | None = None
        self._reported = 0.0

    def stop(self, *_: object) -> None:
        """Save the unit in hand when its step ends, or die if there is nothing to save."""
        if self._checkpoint is None:
            os._exit(1)
        self._checkpoint.pause()

    def train(self, unit: Unit, place: Place | None) -> Finished | Stopped | Failed | TooLarge:
        """Train a unit, from where it was saved."""
        try:
            if place is not None:
                self._checkpoint = place.kind(place.path, place.every, tell=self._tell)
            outcomes = self._run(
                unit.specs,
                unit.seeds,
                device=self._device,
                progress=self._report,
                record_every=unit.record_every,
                checkpoint=self._checkpoint,
                deterministic=unit.deterministic,
            )
            return Finished(outcomes)
        except EngramError as error:
            return Failed(printable(str(error)))
        except Exception as error:
            if self._checkpoint is not None and isinstance(error, self._checkpoint.Paused):
                return Stopped()
            where = traceback.extract_tb(error.__traceback__)[-1]
            name = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
            kind = TooLarge if _lacks_memory(error) else Failed
            return kind(printable(f"{name}: {error}"))
        finally:
            self._checkpoint = None

    def _report(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._reported >= _INTERVAL:
            self._pipe.send(Advanced(progress))
            self._reported = now

    def _tell(self, line: str) -> None:
        self._pipe.send(Told(printable(line)))


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether a GPU had none left; while a graph is recorded, torch says another thing after it."""
    seen = set[int]()  # whoever sets a context can set a circle of them
    while isinstance(error, RuntimeError) and id(error) not in seen:
        if any(sign in str(error) for sign in _NO_MEMORY):
            return True
        seen.add(id(error))
        error = None if error.__suppress_context__ else error.__context__
    return False


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
