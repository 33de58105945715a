"""Processes that sleep for a second in place of training, given out and stored by the real driver.

    python benchmarks/sleepers.py [--workers 100] [--runs 2000] [--json PATH]
    python benchmarks/sleepers.py --executor ray[:ADDRESS] …

They are held by agents, as on a cluster, and reached by its pool; only the network is left out.
With ``--executor ray`` it is not: `ray start --head --num-cpus 100` starts a cluster for it. No
process that sleeps imports torch.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from engram.app.runs import Cluster, Store, Unit, execute
from engram.app.runs.agent import Agent, Orders
from engram.app.runs.provenance import made_with
from engram.app.runs.remote import TICK, News, RemotePool


@dataclass(frozen=True)
class Nap:
    """What a sleeper is told; it has of a spec what the driver asks one for."""

    number: int
    benchmark: str = "nap"
    method: str = "sleep"
    tasks: int = 1

    def identity(self) -> dict[str, Any]:
        """Return what a result is filed under."""
        return {
            "benchmark": self.benchmark,
            "method": self.method,
            "tasks": 1,
            "examples": 1,
            "settings": {"number": self.number},
            "data": "none",
        }


@dataclass(frozen=True)
class Slept:
    """What a sleeper answers with, as an outcome has it."""

    seed: int
    accuracy: list[list[float]]
    curve: list[list[float]]
    seconds: float = 1.0
    device: str = "cpu"
    facts: dict[str, int] = field(default_factory=dict)
    failure: str | None = None
    steps: None = None


def sleep(spec: Sequence[Nap], seeds: Sequence[int], **_: object) -> list[Slept]:
    """Sleep for a second; a worker calls it in place of training."""
    del spec
    time.sleep(1.0)
    facts = {"pid": os.getpid(), "torch": int("torch" in sys.modules)}
    return [Slept(seed, [[1.0]], [[1.0]], facts=facts) for seed in seeds]


class Here:
    """A transport to agents in the driver's own process: all of a cluster but its network."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._agents: dict[Hashable, Agent] = {}
        self._news: list[tuple[Hashable, News]] = []

    def __enter__(self) -> Here:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for key in list(self._agents):
            self.end(key)

    def room(self) -> int:
        return 0

    def start(self, count: int) -> list[Hashable]:
        keys: list[Hashable] = list(range(len(self._agents), len(self._agents) + count))
        for key in keys:
            self._agents[key] = Agent(self._orders, f"node {key}")
            self._news.append((key, self._agents[key].hello()))
        return keys

    def send(self, key: Hashable, number: int, payload: bytes, *, fresh: bool) -> None:
        self._agents[key].send(number, payload, fresh)

    def receive(self) -> list[tuple[Hashable, News]]:
        news, self._news = self._news, []
        for key, agent in self._agents.items():
            news += [(key, each) for each in agent.receive(0.0)]
        if not news:
            time.sleep(TICK / 10)
        return news

    def stop(self, key: Hashable) -> None:
        self._agents[key].stop()

    def end(self, key: Hashable) -> None:
        self._agents.pop(key).kill()


@dataclass(frozen=True)
class Sleeping(Cluster):
    """A cluster whose workers are processes of this machine, held by agents, as many as asked."""

    def check(self) -> None:
        """Nothing is needed for it."""

    def open(self, units: Sequence[Any], run: Any, device: str, listener: Any) -> RemotePool:  # noqa: ANN401
        """Return a pool of them."""
        orders = Orders(pickle.dumps(run), device)
        return RemotePool(Here(orders), self.workers, len(units), listener)


class Counting:
    """Notes when runs are stored."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seconds: list[float] = []

    def advanced(self, unit: Unit, progress: object) -> None: ...

    def message(self, unit: Unit, line: str) -> None: ...

    def cut(self, unit: Unit, line: str) -> None: ...

    def ended(self, unit: Unit, failure: str | None) -> None:
        assert failure is None, f"{unit}: {failure}"
        self.seconds.append(time.perf_counter() - self.began)

    def remark(self, line: str) -> None: ...

    def staffed(self, workers: int, nodes: int) -> None: ...


def measured(workers: int, runs: int, executor: str | None) -> dict[str, Any]:
    """Return how many runs a second the processes are given, and what that costs the driver."""
    import sleepers  # by a name that workers can import it by

    naps: list[Any] = [sleepers.Nap(number) for number in range(runs)]
    units = [Unit(((nap, 0),)) for nap in naps]
    run: Any = sleepers.sleep
    where = (
        Sleeping("ray", workers=workers) if executor is None else Cluster(executor, workers=workers)
    )
    followed = Counting()
    with tempfile.TemporaryDirectory(dir=".") as folder, Store(Path(folder) / "s.sqlite") as store:
        before = resource.getrusage(resource.RUSAGE_SELF)
        execute(
            units,
            store,
            run,
            device="cpu",
            command="python benchmarks/sleepers.py",
            listener=followed,
            cluster=where,
        )
        after = resource.getrusage(resource.RUSAGE_SELF)
        rows = store.rows()
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "workers": workers,
        "processes that slept": len({row.outcome["facts"]["pid"] for row in rows}),
        "runs of them with torch": sum(row.outcome["facts"]["torch"] for row in rows),
        "runs": len(rows),
        "seconds": followed.seconds[-1],
        "milliseconds of the driver's CPU for a run": 1000 * own / len(rows),
        "others at work": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Processes that sleep, given out by the driver.")
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--executor", help="a real cluster, as of `engram run --executor`")
    parser.add_argument("--json", type=Path, help="where to keep the numbers")
    given = parser.parse_args()
    numbers = measured(given.workers, given.runs, given.executor)
    print(json.dumps(numbers, indent=1))
    if given.json:
        held = json.loads(given.json.read_text()) if given.json.exists() else {}
        stamped = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "versions": made_with()}
        cores = len(os.sched_getaffinity(0))
        name = "sleepers" if given.executor is None else "sleepers on ray"
        held[name] = {**stamped, "cores": cores, "measured": numbers}
        given.json.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
