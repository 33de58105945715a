"""Workers on other machines, from the driver's end: who is there, who has which unit.

How bytes get to a worker and back is the business of a `Transport`: `on_ray.py`, `on_slurm.py`.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from engram.app.runs.agent import DATA, Hello, Orders, Said, difference
from engram.app.runs.cluster import Cluster
from engram.app.runs.rows import printable
from engram.app.runs.shipping import SMALL, packed, packed_sources
from engram.app.runs.worker import Advanced, Began, Died, Lost, Message, TooLarge, Unfit
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.app.runs.executor import Executor, Listener, Unit
    from engram.app.runs.worker import Event, Run
    from engram.lab.protocol import Checkpoint

TICK = 0.2  # seconds between two looks at Ctrl-C
_SILENCE = 30.0  # seconds without any worker after which the user is told
_REPORTS = 50  # of progress in a second, from all workers together
_MOST_STILLBORN = 2  # processes of a worker in a row that die before they train


class Gone(NamedTuple):
    """A worker that is no more: why, and whether it is the work that it died of."""

    reason: str
    of_work: bool = False


class Away(NamedTuple):
    """A worker that will say hello again, but has nothing any more of what it was sent."""

    reason: str


News: TypeAlias = Hello | Gone | Away | Said


class Transport(Protocol):
    """Starts workers somewhere, and carries bytes to them and back."""

    def start(self, count: int) -> list[Hashable]:
        """Ask for workers; return their keys. `receive` will say when they are there, or gone."""

    def send(self, key: Hashable, number: int, payload: bytes, *, fresh: bool) -> None:
        """Send a unit of a number to a worker; to a process that is new, if it is to be fresh."""

    def receive(self) -> list[tuple[Hashable, News]]:
        """Wait for news of workers, for a moment; return them."""

    def stop(self, key: Hashable) -> None:
        """Let a worker save its unit."""

    def end(self, key: Hashable) -> None:
        """End a worker at once."""

    def room(self) -> int:
        """Return how many workers there is room for now; 0 where nobody can say."""

    def __enter__(self) -> Transport:
        """Connect to the cluster."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all workers, wherever they are."""


@dataclass
class _Worker:
    hello: Hello | None = None  # None: it was asked for, and is not there yet
    unit: Unit | None = None
    number: int = 0  # of what it was sent last: what it says of anything else is not heard
    began: bool = False  # whether it trains the unit, rather than import what that takes
    fresh: bool = False  # whether the next unit is to be trained by a new process
    stillborn: int = 0  # processes in a row that died before they trained anything


class RemotePool:
    """An executor whose workers a transport starts and reaches.

    A worker counts from its hello on, which must show the driver's versions. One that is lost is
    replaced; one that is unfit, by its versions or its data, is let go by name. What a worker says
    after it was given up is not heard: its unit is somebody else's.
    """

    def __init__(
        self, transport: Transport, wanted: int | None, units: int, listener: Listener
    ) -> None:
        self._transport, self._listener = transport, listener
        self._units, self._wanted = units, wanted or 0
        self._workers: dict[Hashable, _Worker] = {}
        self._idle: dict[Hashable, _Worker] = {}
        self._staff = (0, 0)
        self._sent = 0
        self._false_starts = 0  # in a row
        self._refusals: dict[str, None] = {}
        self._stopping = False
        self._alone_since: float | None = time.monotonic()

    def __enter__(self) -> RemotePool:
        self._transport.__enter__()
        try:
            wanted = self._wanted or self._transport.room()
            if not wanted:
                raise EngramError(
                    "The cluster has no room for a worker now: give --workers to wait for as many."
                )
            self._wanted = min(wanted, self._units)
            self._start_missing()
        except BaseException as error:
            self._transport.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._transport.__exit__(kind, error, trace)

    @property
    def busy(self) -> bool:
        """Whether any worker has a unit."""
        return len(self._idle) < sum(worker.hello is not None for worker in self._workers.values())

    @property
    def has_room(self) -> bool:
        """Whether a worker is there that has no unit."""
        return bool(self._idle) and not self._stopping

    def dispatch(self, unit: Unit, checkpoint: Checkpoint | None) -> None:
        """Send a unit to an idle worker."""
        key, worker = self._idle.popitem()
        self._sent += 1
        worker.unit, worker.number, worker.began = unit, self._sent, False
        payload = pickle.dumps((unit, checkpoint))
        self._transport.send(key, worker.number, payload, fresh=worker.fresh)
        worker.fresh = False

    def poll(self) -> list[tuple[Unit, Event]]:
        """Wait for events, for a moment; return them with the units that they are about."""
        events: list[tuple[Unit, Event]] = []
        for key, news in self._transport.receive():
            worker = self._workers.get(key)
            if worker is None:
                continue  # given up: whatever it says, its unit is another's by now
            if isinstance(news, Hello):
                self._lose_unit(worker, "It has begun anew.", events)
                self._greet(key, worker, news)
            elif isinstance(news, Away):
                self._lose_unit(worker, news.reason, events)
                self._idle.pop(key, None)
                worker.hello = None
            elif isinstance(news, Gone):
                self._miss(key, worker, news, events)
            elif worker.unit is not None and news.number == worker.number:
                self._hear(key, worker, pickle.loads(news.event), events)
        if not self._stopping:
            self._start_missing()
        self._count_staff()
        return events

    def stop(self) -> None:
        """Let every worker save its unit when the current step ends; those without one end."""
        self._stopping = True
        for key, worker in list(self._workers.items()):
            if worker.unit is not None:
                self._transport.stop(key)
            else:
                self._give_up(key)

    def _greet(self, key: Hashable, worker: _Worker, hello: Hello) -> None:
        self._false_starts = 0
        if (different := difference(hello.versions)) is not None:
            self._refuse(key, hello, f"{different}.")
            return
        worker.hello = hello
        self._idle[key] = worker

    def _hear(
        self, key: Hashable, worker: _Worker, event: Event, events: list[tuple[Unit, Event]]
    ) -> None:
        assert worker.unit is not None
        refused = isinstance(event, Unfit)
        if isinstance(event, Began):
            worker.began, worker.stillborn = True, 0
        elif isinstance(event, Died) and not worker.began:
            worker.stillborn += 1  # whatever it was, it was not the unit
            event, refused = Unfit(event.reason), worker.stillborn == _MOST_STILLBORN
        events.append((worker.unit, event))
        if isinstance(event, Began | Advanced | Message):
            return
        worker.unit, worker.fresh = None, isinstance(event, TooLarge)
        if refused:
            assert isinstance(event, Unfit)
            assert worker.hello is not None
            self._refuse(key, worker.hello, event.reason)
        elif self._stopping:
            self._give_up(key)
        else:
            self._idle[key] = worker

    def _miss(
        self, key: Hashable, worker: _Worker, gone: Gone, events: list[tuple[Unit, Event]]
    ) -> None:
        """See to a worker that is no more."""
        del self._workers[key]
        self._idle.pop(key, None)
        if worker.unit is not None:
            self._lose_unit(worker, gone.reason, events, of_work=gone.of_work)
        elif worker.hello is None:
            self._false_starts += 1
            if self._false_starts >= max(3, 2 * self._wanted):
                raise EngramError(f"No worker can be started: {printable(gone.reason)}")

    def _lose_unit(
        self,
        worker: _Worker,
        reason: str,
        events: list[tuple[Unit, Event]],
        *,
        of_work: bool = False,
    ) -> None:
        """Give back the unit of a worker that has it no more, if it has one."""
        if worker.unit is None or worker.hello is None:
            return
        line = printable(f"{reason} It was on {worker.hello.host}.")
        events.append((worker.unit, Died(line) if of_work else Lost(line)))
        worker.unit = None

    def _refuse(self, key: Hashable, hello: Hello, reason: str) -> None:
        """Let a worker go that cannot train what it is to train, and ask for no other."""
        line = printable(f"The worker on {hello.host} is refused: {reason}")
        if line not in self._refusals:
            self._refusals[line] = None
            self._listener.remark(line)
        self._give_up(key)
        self._wanted -= 1
        if not self._workers and not self._stopping:
            raise EngramError(f"No worker is left. {next(iter(self._refusals))}")

    def _give_up(self, key: Hashable) -> None:
        del self._workers[key]
        self._idle.pop(key, None)
        self._transport.end(key)

    def _start_missing(self) -> None:
        if missing := self._wanted - len(self._workers):
            self._workers |= {key: _Worker() for key in self._transport.start(missing)}

    def _count_staff(self) -> None:
        """Let the listener know how many workers there are, and if there have long been none."""
        nodes = [worker.hello.node for worker in self._workers.values() if worker.hello]
        if (staff := (len(nodes), len(set(nodes)))) != self._staff:
            self._staff = staff
            self._listener.staffed(*staff)
        if nodes:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif 0 < self._alone_since < time.monotonic() - _SILENCE:
            self._alone_since = 0.0  # it is said once
            self._listener.remark(
                f"No worker is there yet: {self._wanted} are asked for, and the cluster has not "
                "started any."
            )


def remote_pool(
    cluster: Cluster, units: Sequence[Unit], run: Run, device: str, listener: Listener
) -> AbstractContextManager[Executor]:
    """Return the executor of a cluster that is not this machine."""
    specs = [spec for unit in units for spec in unit.specs]
    once = list({spec.benchmark: spec for spec in specs}.values())
    parcels = packed(once, limit=float("inf") if cluster.ship_data else SMALL)
    sources = packed_sources(specs, trusted=cluster.trust_plugins)
    orders = Orders(
        pickle.dumps(run),
        device,
        interval=max(1.0, (cluster.workers or 0) / _REPORTS),
        data=os.environ.get(DATA) or None,
        parcels=tuple(parcels) if sources is None else (*parcels, sources[1]),
        sources=None if sources is None else sources[0],
    )
    transport: Transport
    if cluster.kind == "ray":
        from engram.app.runs.on_ray import RayTransport

        transport = RayTransport(cluster, orders)
    else:
        from engram.app.runs.on_slurm import SlurmTransport

        transport = SlurmTransport(cluster, orders)
    return RemotePool(transport, cluster.workers, len(units), listener)
