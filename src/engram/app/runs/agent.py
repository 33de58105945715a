"""The far end of a remote executor: what holds a worker process on another machine.

An agent imports no torch. It starts the process that trains (`serve`, as on the driver's own
machine), passes bytes between it and the driver, and ends it when the driver is not heard any more.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engram import __version__
from engram.app.runs.checkpoints import claim
from engram.app.runs.pool import WorkerProcess
from engram.app.runs.provenance import package_digest
from engram.app.runs.shipping import Parcel, Sources, unpacked
from engram.app.runs.worker import Died, UnfitError
from engram.errors import EngramError, shown
from engram.plugins import FILES

if TYPE_CHECKING:
    from engram.app.runs.worker import Run
    from engram.lab.protocol import Checkpoint, Outcome, Spec

DATA = "ENGRAM_DATA"


class Hello(NamedTuple):
    """What a worker says of itself before it is sent anything."""

    node: str  # which machine it is on, as the cluster knows it
    host: str  # as people know it
    versions: Mapping[str, str]


class Said(NamedTuple):
    """An event, pickled, and the number of the unit that it is about."""

    number: int
    event: bytes


@dataclass(frozen=True)
class Orders:
    """What every worker of a driver is started with: the function that trains, and for what."""

    run: bytes  # pickled: an agent does without the laboratory, and its memory
    device: str
    interval: float = 1.0  # seconds between two reports of progress
    lease: float = 120.0  # seconds without the driver after which a worker ends itself
    data: str | None = None  # the driver's folder of data, for a worker that has none of its own
    parcels: tuple[Parcel, ...] = ()  # what travels with the work
    sources: Sources | None = None  # plugins and networks in one of them


def versions() -> dict[str, str]:
    """Return what must be the same on a worker as on the driver, for the same bits."""
    return {
        "engram": __version__,
        "engram's source": package_digest(),
        "python": platform.python_version(),
        "torch": version("torch").partition("+")[0],  # a driver without a GPU has another build
    }


def difference(theirs: Mapping[str, str]) -> str | None:
    """Return in which version a worker differs from this process, in words, or None."""
    for name, mine in versions().items():
        if theirs.get(name) != mine:
            return f"{name} is {shown(theirs.get(name, 'unknown'))} there and {mine!r} here"
    return None


class Agent:
    """Holds one worker process; a driver sends it units and receives events, all of it as bytes.

    Calls may come from several threads, as Ray makes them. A process that dies is an event, and
    the next unit is sent to a new one.
    """

    def __init__(self, orders: Orders, node: str = "") -> None:
        self._orders = orders
        self._node = node or socket.gethostname()
        self._process: WorkerProcess | None = None
        self._number = 0  # of the unit that it was sent last
        self._failed: Died | None = None  # why no process could be started for it
        self._changed = threading.Condition()
        self._asked = time.monotonic()
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def hello(self) -> Hello:
        """Say where this is, and with which versions it trains."""
        return Hello(self._node, socket.gethostname(), versions())

    @property
    def busy(self) -> bool:
        """Whether there is a process that may have a unit."""
        return self._process is not None

    def send(self, number: int, payload: bytes, fresh: bool = False) -> None:
        """Pass a unit on to the process; to a new one if the last is to be ``fresh``, or died.

        The unit before it has ended. Whatever is received from now on is said of this ``number``.
        """
        with self._changed:
            if self._process is not None and (fresh or not self._process.alive):
                self._process.kill()
                self._process = None
            self._number, self._failed = number, None
            try:
                self._process = self._process or self._started()
            except Exception as error:  # whatever it is, the driver waits to hear of its unit
                self._failed = Died(f"No process can be started: {error}.")
            else:
                with suppress(OSError):  # it has just died, and receive() will say so
                    self._process.pipe.send_bytes(payload)
            self._changed.notify_all()

    def _started(self) -> WorkerProcess:
        orders = self._orders
        trained = OnNode(orders.run, orders.data, orders.parcels, orders.sources)
        return WorkerProcess(trained, orders.device, orders.interval)

    def receive(self, seconds: float) -> list[Said]:
        """Return events as they come; none if there are none for so long."""
        self._asked = time.monotonic()
        until = self._asked + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._process or self._failed, seconds)
            process, failed, self._failed = self._process, self._failed, None
            if failed is not None:
                return [Said(self._number, pickle.dumps(failed))]
        try:
            if process is None or not wait([process.pipe], max(until - time.monotonic(), 0.0)):
                return []
        except (OSError, ValueError):  # it was replaced meanwhile, and its pipe closed
            return []
        with self._changed:
            return self._read(process) if self._process is process else []

    def _read(self, process: WorkerProcess) -> list[Said]:
        events = list[Said]()
        try:
            while not events or process.pipe.poll():
                events.append(Said(self._number, process.pipe.recv_bytes()))
        except (EOFError, OSError):
            died = Died(process.cause_of_death())
            events.append(Said(self._number, pickle.dumps(died)))
            process.kill()
            self._process = None
        return events

    def stop(self) -> None:
        """Let the process save its unit when its step ends."""
        with self._changed:
            if self._process is not None:
                self._process.stop()

    def kill(self) -> None:
        """End the process at once, for good: no driver is waited for any more."""
        self._over.set()
        with self._changed:
            if self._process is not None:
                self._process.kill()
                self._process = None

    def _watch(self) -> None:
        """End this process, and with it the worker, if no driver has asked for anything."""
        while not self._over.wait(min(1.0, self._orders.lease / 4)):
            if time.monotonic() - self._asked >= self._orders.lease:
                os._exit(1)


@dataclass(frozen=True)
class OnNode:
    """The function that trains, on a machine that is not the driver's.

    It trains on this machine's data if that is the driver's, by its checksum, or on what was
    shipped; it writes a checkpoint that nobody else writes.
    """

    run: bytes
    data: str | None
    parcels: tuple[Parcel, ...]
    sources: Sources | None = None

    def __call__(
        self,
        spec: Spec | Sequence[Spec],
        seeds: Sequence[int],
        *,
        checkpoint: Checkpoint | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[Outcome]:
        """Train what is found fit to be trained here; an `UnfitError` says that it is not."""
        if not os.environ.get(DATA) and self.data is not None and Path(self.data).is_dir():
            os.environ[DATA] = self.data
        here = self._checked(list(spec) if isinstance(spec, Sequence) else [spec])
        if checkpoint is not None:
            checkpoint.path = claim(checkpoint.path, type(checkpoint))
        run: Run = pickle.loads(self.run)
        return run(here, seeds, checkpoint=checkpoint, **options)

    def _checked(self, specs: Sequence[Spec]) -> list[Spec]:
        """Return the specs as they are to be had here; refuse what is not the driver's."""
        parcel = next((each for each in self.parcels if each.benchmark == specs[0].benchmark), None)
        try:
            made = self._with_sources(specs)
            try:
                return [_same(*both) for both in zip(specs, made, strict=True)]
            except EngramError:
                if parcel is None:
                    raise
            place = unpacked(parcel)
            there = [parcel.located(spec, place) for spec in made]
            return [_same(*both) for both in zip(specs, there, strict=True)]
        except EngramError as error:
            raise UnfitError(str(error)) from None

    def _with_sources(self, specs: Sequence[Spec]) -> list[Spec]:
        """Return specs that nothing is known of yet, with the networks that were sent."""
        sources = self.sources
        if sources is None:
            os.environ.pop(FILES, None)  # none is run unasked, wherever the variable comes from
            return [replace(spec) for spec in specs]
        (parcel,) = (each for each in self.parcels if each.digest == sources.digest)
        place = unpacked(parcel)
        sources.put_in_place(place)
        return [sources.located(spec, place) for spec in specs]


def _same(wanted: Spec, here: Spec) -> Spec:
    """Return a spec whose data and sources were looked at on this machine, if it is as wanted."""
    mine, theirs = here.identity(), wanted.identity()
    for name in ("data", *theirs):
        if mine.get(name) != theirs[name]:
            raise EngramError(
                f"its {name} of {wanted.benchmark} is {shown(mine.get(name))}, and the driver's "
                f"{shown(theirs[name])}."
            )
    return here
