"""What a worker process does: it trains the units that it is sent, and dies with its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from engram import plugins
from engram.app.runs.provenance import made_with
from engram.app.runs.rows import printable
from engram.app.terminal import guard_streams
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.lab.protocol import Checkpoint, Outcome, Progress, Spec

INTERVAL = 0.1  # seconds between two reports of progress
_NO_MEMORY = ("out of memory", "ALLOC_FAILED")  # as torch and Triton, cuBLAS and cuDNN put it


class Run(Protocol):
    """Trains a spec for each seed and returns an outcome for each; `engram.lab.protocol.run` does.

    A worker imports it by its name: it must be a function of a module.
    """

    def __call__(
        self,
        spec: Spec | Sequence[Spec],
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        progress: Callable[[Progress], None] | None = None,
        record_every: int = 0,
        checkpoint: Checkpoint | None = None,
        deterministic: bool = False,
    ) -> list[Outcome]:
        """Train, from where ``checkpoint`` was saved."""


class Began(NamedTuple):
    """A worker has all that it needs, and trains from now on."""


class Advanced(NamedTuple):
    """How far a worker is."""

    progress: Progress


class Message(NamedTuple):
    """A line for the user."""

    line: str


class Finished(NamedTuple):
    """A worker's results, and what it made them with."""

    outcomes: list[Outcome]
    versions: Mapping[str, str] | None = None  # None: as the driver's process has them


class Stopped(NamedTuple):
    """A worker has saved its unit, as it was asked to."""


class Failed(NamedTuple):
    """A worker's error, in one sentence."""

    reason: str


class TooLarge(NamedTuple):
    """A GPU has too little memory for a unit: what it said, in one sentence."""

    reason: str


class Died(NamedTuple):
    """What became of a worker's process, in one sentence."""

    reason: str


class Lost(NamedTuple):
    """What became of the machine of a worker, or of the way to it, in one sentence."""

    reason: str


class Unfit(NamedTuple):
    """Why a worker cannot train a unit that others may, in one sentence."""

    reason: str


Event: TypeAlias = (
    Began | Advanced | Message | Finished | Stopped | Failed | TooLarge | Died | Lost | Unfit
)


class UnfitError(EngramError):
    """Raised by a run on a machine that lacks what it needs."""


def serve(pipe: Connection, run: Run, device: str, interval: float = INTERVAL) -> None:
    """Train unit after unit, each from where it was saved, until no more is sent.

    Progress is reported every ``interval`` seconds.

    SIGTERM saves the current unit when its step ends; where there is nothing to save the process
    ends at once.
    """
    os.dup2(2, 1)  # whatever a library prints must not mix with the parent's JSON
    sys.stdout = sys.stderr  # the other one may have been a file's, and knows nothing of it
    guard_streams()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    current: Checkpoint | None = None
    reported = 0.0

    def stop(*_: object) -> None:
        if current is None:
            os._exit(1)
        current.pause()

    def report(progress: Progress) -> None:
        nonlocal reported
        now = time.monotonic()
        if now - reported >= interval:
            pipe.send(Advanced(progress))
            reported = now

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent's; held back until here
    signal.signal(signal.SIGTERM, stop)
    while True:
        try:
            unit, checkpoint = pipe.recv()
        except EOFError:
            return
        if checkpoint is not None:
            checkpoint.message = lambda line: pipe.send(Message(printable(line)))
        event: Finished | Stopped | Failed | TooLarge | Unfit
        try:
            current = checkpoint
            pipe.send(Began())
            outcomes = run(
                unit.specs,
                unit.seeds,
                device=device,
                progress=report,
                record_every=unit.record_every,
                checkpoint=checkpoint,
                deterministic=unit.deterministic,
            )
            event = Finished(outcomes, made_with(gpu=device != "cpu"))
        except Exception as error:
            event = _failure(error, checkpoint)
        finally:
            current = None
        pipe.send(event)


def _failure(
    error: Exception, checkpoint: Checkpoint | None
) -> Stopped | Failed | TooLarge | Unfit:
    """Return what an error in a run means."""
    if isinstance(error, UnfitError):
        return Unfit(printable(str(error)))
    if isinstance(error, EngramError):
        return Failed(printable(str(error)))
    if checkpoint is not None and isinstance(error, checkpoint.Paused):
        return Stopped()
    if lacks_memory(error):
        return TooLarge(printable(_described(error)))
    return Failed(printable(plugins.fault(error) or _described(error)))


def _described(error: Exception) -> str:
    """Return what was raised, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"


def lacks_memory(error: BaseException | None) -> bool:
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
