"""Workers as jobs of Slurm, submitted by submitit: files in a shared folder are their mail.

Compute nodes need not be able to reach the driver's machine, only the folder. In it are

    driver                    a number that the driver changes while it lives, and removes
    to/WORKER.LIFE.TIME       what the driver sends
    from/WORKER.LIFE.TIME     what a worker sends
    DIGEST.tar                data and sources that travel with the work
    jobs/                     submitit's own files, the jobs' output among them

A life is one start of a job: Slurm may start a job again. Whatever a life that was given up still
writes is never read. The folder belongs to its owner alone, since what is in it is unpickled.
"""

from __future__ import annotations

import os
import pickle
import shutil
import threading
import time
import uuid
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from engram.app.runs.agent import Agent, Orders, Said
from engram.app.runs.cluster import Cluster
from engram.app.runs.remote import TICK, Away, Gone, News
from engram.app.runs.rows import printable
from engram.app.runs.shipping import Parcel
from engram.errors import EngramError

_BEAT = 5.0  # seconds between two signs of life
_LOOK = 0.5  # seconds between two looks of a worker into its mail
_SILENT = 300.0  # seconds without a sign of life after which a worker is given up
_GRACE = 60.0  # seconds that a unit has to be saved in, before its job is ended
_PATIENCE = 10.0  # seconds for jobs on this machine to end in
_ASK = 30.0  # seconds between two questions about the jobs' states
_USUAL = {"timeout_min": 240, "cpus_per_task": 1, "name": "engram"}
_PLAIN = ("timeout_min", "cpus_per_task", "mem_gb", "name", "nodes", "tasks_per_node")
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "UNKNOWN")
_AT_WORK = ("RUNNING", "COMPLETING", "CONFIGURING", "READY", *_WAITING)


class _Send(NamedTuple):
    number: int
    payload: bytes
    fresh: bool


class _Stop(NamedTuple):
    """Save the current unit."""


class _End(NamedTuple):
    """Be gone."""


class SlurmTransport:
    """Submits a job for each worker, and exchanges files with it."""

    def __init__(self, cluster: Cluster, orders: Orders) -> None:
        assert cluster.shared is not None
        options = dict(cluster.slurm)
        self._local = options.pop("cluster", "slurm") == "local"
        self._cluster, self._orders, self._options = cluster, orders, options
        self._folder = cluster.shared / f"engram-{time.strftime('%Y%m%d-%H%M%S')}-{_unique()}"
        self._jobs: dict[Hashable, Any] = {}
        self._lives: dict[Hashable, str] = {}
        self._seen: dict[Hashable, float] = {}  # when something last came from a worker
        self._ending: list[Any] = []
        self._asked = 0.0
        self._number = 0
        self._over = threading.Event()

    def __enter__(self) -> SlurmTransport:
        import submitit

        if not self._local and shutil.which("sbatch") is None:
            raise EngramError("There is no Slurm on this machine: sbatch is not on the path.")
        try:
            self._folder.mkdir(0o700, parents=True)
            for name in ("to", "from"):
                (self._folder / name).mkdir()
            (self._folder / "driver").write_text("0")
            self._orders = replace(self._orders, parcels=tuple(self._shared_parcels()))
        except OSError as error:
            raise EngramError(f"{str(self._folder)!r} cannot be made: {error.strerror}.") from error
        jobs = self._folder / "jobs"
        self._submit = submitit.AutoExecutor(jobs, cluster="local" if self._local else "slurm")
        try:
            self._submit.update_parameters(**self._parameters())
        except (AssertionError, NameError, TypeError, ValueError) as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            reason = printable(str(error)).partition(". ")[0]  # after it they list all that are
            raise EngramError(f"slurm has an option that cannot be: {reason}.") from None
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def _shared_parcels(self) -> Iterator[Parcel]:
        """Write what is to travel into the folder, once for all workers."""
        for parcel in self._orders.parcels:
            path = self._folder / f"{parcel.digest}.tar"
            path.write_bytes(parcel.content())
            yield replace(parcel, source=path)

    def _parameters(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {**_USUAL, "slurm_signal_delay_s": int(_GRACE) + 30}
        if self._cluster.where:
            chosen["slurm_partition"] = self._cluster.where
        if self._cluster.gpus_per_worker:
            chosen["gpus_per_node"] = 1
        for name, value in self._options.items():
            plain = name in _PLAIN or name.startswith("slurm_")
            chosen[name if plain else f"slurm_{name}"] = value
        return chosen

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for key in list(self._jobs):
            self.end(key)
        until = time.monotonic() + _PATIENCE
        while any(not job.done() for job in self._ending) and time.monotonic() < until:
            time.sleep(TICK)
        for job in self._ending:
            _cancel(job)
        if kind is None or issubclass(kind, KeyboardInterrupt):
            shutil.rmtree(self._folder, ignore_errors=True)
        else:  # the jobs' output may say why; but none of them is to find a driver
            with suppress(OSError):
                (self._folder / "driver").unlink()

    def _beat(self) -> None:
        beats = 0
        while not self._over.wait(_BEAT):
            beats += 1
            with suppress(OSError):
                _write(self._folder / "driver", str(beats).encode())

    def room(self) -> int:
        """Nobody can say how long Slurm's queue is."""
        return 0

    def start(self, count: int) -> list[Hashable]:
        """Submit jobs, as one array."""
        keys: list[Hashable] = []
        try:
            with self._submit.batch():
                jobs = []
                for _ in range(count):
                    self._number += 1
                    keys.append(self._number)
                    worker = SlurmWorker(self._folder, self._number, self._orders)
                    jobs.append(self._submit.submit(worker))
        except Exception as error:  # of submitit, whose errors have no common name
            raise EngramError(f"Slurm takes no job: {printable(str(error))[:200]}.") from error
        self._jobs |= dict(zip(keys, jobs, strict=True))
        return keys

    def send(self, key: Hashable, number: int, payload: bytes, *, fresh: bool) -> None:
        """Put a unit into a worker's mail."""
        self._mail(key, _Send(number, payload, fresh))

    def stop(self, key: Hashable) -> None:
        """Ask a worker to save its unit."""
        self._mail(key, _Stop())

    def end(self, key: Hashable) -> None:
        """Cancel a job, and tell its worker, which may be out of Slurm's reach."""
        with suppress(OSError):
            self._mail(key, _End())
        job = self._jobs.pop(key)
        if self._local:  # which ends by itself, and is noisy when it is interrupted
            self._ending.append(job)
        else:
            _cancel(job)

    def _mail(self, key: Hashable, message: _Send | _Stop | _End) -> None:
        if key in self._lives:
            place = self._folder / "to" / f"{key}.{self._lives[key]}.{time.time_ns():020d}"
            _write(place, pickle.dumps(message))

    def receive(self) -> list[tuple[Hashable, News]]:
        """Return what has come; wait a moment where nothing has."""
        news = list(self._arrived())
        if not news:
            time.sleep(TICK)
        if time.monotonic() - self._asked > (1.0 if self._local else _ASK):
            self._asked = time.monotonic()
            news += self._missing()
        return news

    def _arrived(self) -> Iterator[tuple[Hashable, News]]:
        for path in _letters(self._folder / "from"):
            number, life, _ = path.name.split(".")
            key = int(number)
            content = path.read_bytes()
            path.unlink(missing_ok=True)
            if key not in self._jobs:
                continue  # given up
            letter: list[News] = pickle.loads(content)
            if letter and letter[0] is None:  # a hello comes after it
                self._lives[key] = life
                letter = letter[1:]
            if self._lives.get(key) == life:
                self._seen[key] = time.monotonic()
                yield from ((key, each) for each in letter)

    def _missing(self) -> Iterator[tuple[Hashable, News]]:
        """Yield the workers whose jobs have ended, wait again, or are silent."""
        if not self._local:
            with suppress(Exception):  # sacct may be out of order for a while
                next(iter(self._jobs.values())).watcher.update()
        for key, job in list(self._jobs.items()):
            state = str(job.state).partition(" ")[0]
            lived = self._lives.get(key)
            if state not in _AT_WORK:
                self._jobs.pop(key)
                self._lives.pop(key, None)
                reason = f"The worker's job {job.job_id} has ended as {state}."
                yield key, Gone(reason, of_work=state == "OUT_OF_MEMORY")
            elif lived and state in _WAITING and state != "UNKNOWN":
                self._lives.pop(key)
                yield key, Away(f"The worker's job {job.job_id} waits to be started again.")
            elif lived and time.monotonic() - self._seen[key] > _SILENT:
                self.end(key)
                self._lives.pop(key, None)
                yield key, Gone(f"Nothing was heard of the worker's job {job.job_id} for long.")


class SlurmWorker:
    """What a job does: it trains what comes by mail, until the driver ends it or is gone.

    When Slurm is about to take its machine away, submitit calls ``checkpoint``: the unit is saved,
    the driver told, and the job put into the queue again.
    """

    def __init__(self, folder: Path, number: int, orders: Orders) -> None:
        self._folder, self._number, self._orders = folder, number, orders
        self._life, self._last = "", 0
        self._agent: Agent | None = None

    def __call__(self) -> None:
        """Train what is sent."""
        if not (self._folder / "driver").exists():
            return
        self._life = _unique()
        self._agent = agent = Agent(self._orders, os.environ.get("SLURMD_NODENAME", ""))
        self._post([None, agent.hello()])
        beat, changed, posted = "", time.monotonic(), time.monotonic()
        while time.monotonic() - changed < self._orders.lease:
            try:
                if (now := (self._folder / "driver").read_text()) != beat:
                    beat, changed = now, time.monotonic()
            except FileNotFoundError:  # it has ended, and what it still had to say is gone as well
                break
            except OSError:  # the folder is out of reach for now
                pass
            for path in _letters(self._folder / "to", f"{self._number}.{self._life}."):
                message = pickle.loads(path.read_bytes())
                path.unlink(missing_ok=True)
                if isinstance(message, _Send):
                    agent.send(*message)
                elif isinstance(message, _Stop):
                    agent.stop()
                else:
                    agent.kill()
                    return
            events = agent.receive(_LOOK)
            if events or time.monotonic() - posted > _BEAT:
                self._post(events)
                posted = time.monotonic()
        agent.kill()

    def checkpoint(self) -> Any:  # noqa: ANN401 (submitit's)
        """Save the unit, say that this life is over, and let the job be queued again."""
        from submitit.helpers import DelayedSubmission

        if self._agent is not None:
            self._post([*self._last_events(self._agent), Away("Slurm takes the machine back.")])
            self._agent.kill()
        return DelayedSubmission(SlurmWorker(self._folder, self._number, self._orders))

    def _last_events(self, agent: Agent) -> list[Said]:
        events, until = list[Said](), time.monotonic() + _GRACE
        while agent.busy and time.monotonic() < until:
            agent.stop()  # a process that has saved its unit, and is sent no other, dies of it
            events += agent.receive(_LOOK)
        return events

    def _post(self, letter: list[Any]) -> None:
        self._last = max(self._last + 1, time.time_ns())
        name = f"{self._number}.{self._life}.{self._last:020d}"
        with suppress(FileNotFoundError):  # the driver is gone, and has put everything away
            _write(self._folder / "from" / name, pickle.dumps(letter))


def _letters(folder: Path, start: str = "") -> list[Path]:
    """Return what lies in a folder, the oldest of each sender first."""
    with suppress(OSError):
        names = [entry.name for entry in os.scandir(folder)]
        return [
            folder / name for name in sorted(names) if name[0] != "." and name.startswith(start)
        ]
    return []


def _write(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_name(f".{path.name}")
    part.write_bytes(content)
    part.replace(path)


def _cancel(job: Any) -> None:  # noqa: ANN401 (submitit's)
    with suppress(Exception):  # it may have ended by itself
        job.cancel(check=False)


def _unique() -> str:
    return uuid.uuid4().hex[:8]
