"""Workers on a Ray cluster: an actor for each, which holds a process that trains."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, cast

from engram.app.runs.agent import Agent, Orders, Said
from engram.app.runs.cluster import Cluster
from engram.app.runs.remote import TICK, Away, Gone, News
from engram.app.runs.rows import printable
from engram.app.runs.shipping import unpacked
from engram.errors import EngramError

_LONG = 10.0  # seconds that a worker waits for news before it says that there are none
_SILENT = 3 * _LONG  # without an answer of any worker, Ray is asked whether it still knows us
_OWNER = "owner has died"  # as Ray says of a worker whose driver it has given up
_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"  # to reach the cluster, whatever Ray calls it
_THREADS = 4  # of an actor: one waits for news while others take a unit, or a stop


class RayTransport:
    """Starts actors on a Ray cluster, and asks each of them for news, again and again.

    An actor asks for one CPU and its share of a GPU, so that Ray fills every node. All of them
    belong to this driver: Ray ends them when it goes, whatever way it goes.
    """

    def __init__(self, cluster: Cluster, orders: Orders) -> None:
        self._cluster, self._orders = cluster, orders
        self._actors: dict[Hashable, Any] = {}
        self._asked: dict[Any, Hashable] = {}  # what news are waited for of whom
        self._number = 0
        self._mine = False  # whether Ray was begun here
        self._answered = time.monotonic()  # when any worker last answered

    def __enter__(self) -> RayTransport:
        self._streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (cast(TextIO, _Muted(each)) for each in self._streams)
        try:
            self._begin()
        except BaseException:
            sys.stdout, sys.stderr = self._streams
            raise
        return self

    def _begin(self) -> None:
        with _signals_kept():
            import ray

            self._ray = ray
            if not ray.is_initialized():
                self._connect()
                self._mine = True
        self._ship()
        self._actor = ray.remote(
            num_cpus=1,
            num_gpus=self._cluster.gpus_per_worker,
            max_restarts=0,
            max_concurrency=_THREADS,
        )(RayAgent)

    def _connect(self) -> None:
        address = self._cluster.where or os.environ.get("RAY_ADDRESS") or "auto"
        try:
            _check_reachable(address)
            with _one_attempt(), _native_output_muted():
                self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (self._ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
            reason = printable(str(error)).partition(". ")[0][:160].rstrip(".")
            raise EngramError(
                f"No Ray cluster can be used at {address!r}: {reason}. `ray start --head` starts "
                "one; one that has a token expects it from this machine too."
            ) from None

    def _ship(self) -> None:
        """Put what is to travel into the object store, which brings it to each node once."""
        parcels = tuple(
            replace(each, source=self._ray.put(each.source)) for each in self._orders.parcels
        )
        self._shipped = replace(self._orders, parcels=parcels)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for key in list(self._actors):
            self.end(key)
        if self._mine:
            self._disconnect()
        sys.stdout, sys.stderr = self._streams

    def _disconnect(self) -> None:
        with (
            _signals_kept(),
            Path(os.devnull).open("w") as nowhere,
            redirect_stdout(nowhere),  # it prints what its threads have held back
            redirect_stderr(nowhere),
        ):
            self._ray.shutdown()

    def room(self) -> int:
        """Return how many workers the cluster's nodes have the CPUs and GPUs for."""
        share = self._cluster.gpus_per_worker
        return sum(places(node["Resources"], share) for node in self._ray.nodes() if node["Alive"])

    def start(self, count: int) -> list[Hashable]:
        """Ask Ray for actors, and each for its hello."""
        keys: list[Hashable] = list(range(self._number, self._number + count))
        self._number += count
        self._ask_for(keys)
        return keys

    def _ask_for(self, keys: list[Hashable]) -> None:
        for key in keys:
            actor = self._actor.remote(self._shipped)
            self._actors[key] = actor
            self._asked[actor.hello.remote()] = key

    def send(self, key: Hashable, number: int, payload: bytes, *, fresh: bool) -> None:
        """Send a unit; that it does not arrive is found out by asking for news."""
        self._actors[key].send.remote(number, payload, fresh)

    def receive(self) -> list[tuple[Hashable, News]]:
        """Return what actors have answered, and ask them again."""
        ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=TICK)
        if ready:
            self._answered = time.monotonic()
        elif time.monotonic() - self._answered > _SILENT:
            self._answered = time.monotonic()
            if not self._known():
                return self._begun_anew()
        if ready and len(self._asked) > 1:
            ready, _ = self._ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        news: list[tuple[Hashable, News]] = []
        for asked in ready:
            key = self._asked.pop(asked, None)
            if key in self._actors:
                news += self._answer(key, asked)
        return news

    def _known(self) -> bool:
        """Whether the cluster takes our own node for alive: it ends all workers of another."""
        mine = self._ray.get_runtime_context().get_node_id()
        return any(node["Alive"] for node in self._ray.nodes() if node["NodeID"] == mine)

    def _begun_anew(self) -> list[tuple[Hashable, News]]:
        """Connect once more, and ask for all workers again.

        Our machine, or the way to it, was away for a while, and no worker is started for us.
        """
        reason = "The cluster had given up the driver's node."
        if not self._mine:
            raise EngramError(f"{reason} Connect to it again, and give the same command.")
        keys = list(self._actors)
        self._actors.clear()
        self._asked.clear()
        self._disconnect()
        with _signals_kept():
            self._connect()
        self._ship()
        self._ask_for(keys)
        return [(key, Away(reason)) for key in keys]

    def _answer(self, key: Hashable, asked: Any) -> list[tuple[Hashable, News]]:  # noqa: ANN401
        errors = self._ray.exceptions
        try:
            answer: list[News] = self._ray.get(asked)
        except (errors.RayError, OSError) as error:
            if _OWNER in str(error) and not self._known():
                return self._begun_anew()
            # One that is only out of reach, for now, may have said what will not be said again.
            self.end(key)
            gone = Gone(_sentence(error), of_work=isinstance(error, errors.OutOfMemoryError))
            return [(key, gone)]
        self._asked[self._actors[key].receive.remote(_LONG)] = key
        return [(key, each) for each in answer]

    def stop(self, key: Hashable) -> None:
        """Let an actor have its unit saved."""
        self._actors[key].stop.remote()

    def end(self, key: Hashable) -> None:
        """Kill an actor, and with it the process that it holds."""
        with suppress(Exception):  # whatever it is, the actor is of no more use
            self._ray.kill(self._actors.pop(key), no_restart=True)


def places(resources: Mapping[str, float], gpus_per_worker: float) -> int:
    """Return how many workers a node of these resources has room for.

    A worker has one CPU and its share of one GPU, never parts of two.

    >>> places({"CPU": 16.0, "GPU": 8.0}, 0.25), places({"CPU": 64.0, "GPU": 8.0}, 0.3)
    (16, 24)
    """
    cores = int(resources.get("CPU", 0))
    if not gpus_per_worker:
        return cores
    return min(cores, int(resources.get("GPU", 0)) * int(1 / gpus_per_worker))


def room(cluster: Cluster) -> int:
    """Return how many workers a cluster has room for, at least one."""
    with RayTransport(cluster, Orders(b"", "cpu")) as transport:
        return max(transport.room(), 1)


class _Muted:
    """A stream without what Ray's own threads have to say of workers: we say it shorter.

    Ray prints some of it on stdout, which may be JSON.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what others have to say."""
        if threading.current_thread().name.startswith("ray_"):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


class RayAgent:
    """An agent as Ray's actors have it."""

    def __init__(self, orders: Orders) -> None:
        import ray

        there = tuple(replace(each, source=None) for each in orders.parcels)
        for parcel in orders.parcels:
            with suppress(EngramError):  # the run that needs it will say that it is not there
                unpacked(replace(parcel, source=lambda sent=parcel.source: ray.get(sent)))
        node = ray.get_runtime_context().get_node_id()
        self._agent = Agent(replace(orders, parcels=there), node)

    def hello(self) -> list[News]:
        """Say where this is."""
        return [self._agent.hello()]

    def send(self, number: int, payload: bytes, fresh: bool) -> None:
        """Take a unit."""
        self._agent.send(number, payload, fresh)

    def receive(self, seconds: float) -> list[Said]:
        """Return events, or nothing after so many seconds."""
        return self._agent.receive(seconds)

    def stop(self) -> None:
        """Let the current unit be saved."""
        self._agent.stop()


def _check_reachable(address: str) -> None:
    """Raise an OSError where nobody listens: Ray itself tries for a quarter of an hour."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_LONG).close()


def _sentence(error: BaseException) -> str:
    """Return what Ray says of a dead actor, in one short sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "error" in line.lower() or "died" in line.lower()]
    text = printable((reasons or lines or ["its actor is gone"])[-1]).partition(". ")[0]
    return f"The worker was lost: {text[:160].rstrip('. ')}."


@contextmanager
def _one_attempt() -> Iterator[None]:
    """Let Ray try once to reach a cluster, for half a minute, unless the user says how often.

    Its own usual are twenty times. What this process does with Ray afterwards is not our business.
    """
    given = os.environ.get(_ATTEMPTS)
    os.environ[_ATTEMPTS] = given or "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[_ATTEMPTS]


@contextmanager
def _native_output_muted() -> Iterator[None]:
    """Do without what Ray's own libraries write on this process's stderr: errors say it too."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep our handlers of signals, in place of which Ray puts its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            if handler is not None:
                signal.signal(each, handler)
