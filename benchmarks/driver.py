"""What a study of thousands of runs costs the process that gives it out, whoever trains them.

    python benchmarks/driver.py study [--runs 10000] [--json PATH]
    python benchmarks/driver.py paper [--workers 1000] [--runs 10000] [--json PATH]

``study`` plans, stores and reports runs whose outcomes were made up, at the size asked for and at a
tenth of it: what is linear costs as much a run at both. ``paper`` lets the real `execute` and the
real store serve a cluster whose workers, deaths and clock are simulated. For real processes that
sleep see sleepers.py.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from engram.app.runs import Cluster, Store, Unit, execute, plan_units
from engram.app.runs.provenance import made_with
from engram.app.runs.worker import Advanced, Event, Finished, Lost
from engram.lab.protocol import Checkpoint, Outcome, Progress, Spec, specify
from engram.lab.protocol import run as train

TASKS = 17
SEEDS = 100
METHODS = ("van", "ewc", "pi", "mas", "rwalk", "a-gem", "er", "mer", "mega-i", "mega-ii")
COMMAND = "python benchmarks/driver.py"


_Made = TypeVar("_Made")


class Silent:
    """Follows nothing."""

    def advanced(self, unit: Unit, progress: Progress) -> None: ...

    def message(self, unit: Unit, line: str) -> None: ...

    def cut(self, unit: Unit, line: str) -> None: ...

    def ended(self, unit: Unit, failure: str | None) -> None: ...

    def remark(self, line: str) -> None: ...

    def staffed(self, workers: int, nodes: int) -> None: ...


def specs_of(runs: int) -> list[Spec]:
    """Return specs for so many runs of a hundred seeds each: methods, by learning rates."""
    made = []
    for number in range(-(-runs // SEEDS)):
        method = METHODS[number % len(METHODS)]
        rate = {"learning_rate": f"{0.01 * (1 + number // len(METHODS)):g}"}
        made.append(specify("permuted-mnist", method, tasks=TASKS, overrides=rate))
    return made


def outcome(seed: int, source: random.Random) -> Outcome:
    """Return what a run might have come to: as many numbers as a real one has."""
    start = source.uniform(0.8, 0.95)
    matrix = [
        [
            start - 0.01 * (k - j) + source.uniform(-0.01, 0.01) if j <= k else None
            for j in range(TASKS)
        ]
        for k in range(TASKS)
    ]
    curve = [[start * (1 - 0.5**b) for b in range(11)] for _ in range(TASKS)]
    facts: dict[str, int | float | str] = {
        "parameters": 89610,
        "memory_bytes": 4 * 10**6,
        "stacked": 1,
    }
    return Outcome(seed, matrix, curve, source.uniform(60, 120), "cpu", facts)


# A cluster on paper: the clock stands still but for what workers do.


@dataclass(frozen=True)
class OnPaper(Cluster):
    """A cluster of simulated workers; see `Simulation`."""

    simulated: Simulation | None = None

    def check(self) -> None:
        """Nothing is needed for it."""

    def open(self, *_: object) -> Simulation:
        """Return the simulation."""
        assert self.simulated is not None
        return self.simulated


@dataclass
class Simulation:
    """Workers that take so long for a run, and die so often, by a clock of their own.

    A unit whose worker dies goes on from its last checkpoint; a new worker is there a while later.
    """

    workers: int
    seconds: float  # of a run, in the mean
    spread: float  # of the logarithm of a run's seconds
    lifetime: float  # of a worker, in the mean
    start: float = 30.0  # seconds until a worker is there
    every: float = 60.0  # seconds between two checkpoints
    seed: int = 0
    now: float = 0.0
    deaths: int = 0
    redone: float = 0.0  # seconds of work that were done twice
    worked: float = 0.0
    asleep: float = 0.0  # real seconds that are not the driver's own: spent simulating
    asleep_cpu: float = 0.0  # and the CPU's
    _left: dict[Unit, float] = field(default_factory=dict)
    _events: list[tuple[float, int, str, Unit | None, float]] = field(default_factory=list)
    _idle: int = 0
    _busy: int = 0
    _count: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        for _ in range(self.workers):
            self._push(self._random.uniform(0, self.start), "ready", None, 0.0)

    def _push(self, after: float, kind: str, unit: Unit | None, begun: float) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + after, self._count, kind, unit, begun))

    def __enter__(self) -> Simulation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    def busy(self) -> bool:
        return self._busy > 0

    @property
    def has_room(self) -> bool:
        return self._idle > 0

    def dispatch(self, unit: Unit, checkpoint: Checkpoint | None) -> None:
        del checkpoint
        self._idle -= 1
        self._busy += 1
        if unit not in self._left:
            whole = self.seconds * self._random.lognormvariate(-(self.spread**2) / 2, self.spread)
            self._left[unit] = whole
        death = self._random.expovariate(1 / self.lifetime)
        left = self._left[unit]
        self._push(min(left, death), "done" if left <= death else "died", unit, self.now)

    def poll(self) -> list[tuple[Unit, Event]]:
        began, cpu = time.perf_counter(), time.process_time()
        events: list[tuple[Unit, Event]] = []
        if self._events:
            at = self._events[0][0]
            while self._events and self._events[0][0] <= at + 0.2:  # as real ones come together
                self.now, _, kind, unit, begun = heapq.heappop(self._events)
                events += self._happened(kind, unit, self.now - begun)
        self.asleep += time.perf_counter() - began
        self.asleep_cpu += time.process_time() - cpu
        return events

    def _happened(self, kind: str, unit: Unit | None, took: float) -> list[tuple[Unit, Event]]:
        if unit is None:
            self._idle += 1
            return []
        self._busy -= 1
        self.worked += took
        progress = Advanced(Progress(TASKS - 1, TASKS, 1, 1))
        if kind == "done":
            self._idle += 1
            made = [outcome(seed, self._random) for seed in unit.seeds]
            return [(unit, progress), (unit, Finished(made, made_with()))]
        saved = took // self.every * self.every
        self._left[unit] -= saved
        self.deaths += 1
        self.redone += took - saved
        self._push(self._random.uniform(0, 2 * self.start), "ready", None, 0.0)
        return [(unit, Lost("Its node is down."))]

    def stop(self) -> None: ...


def paper(workers: int, runs: int) -> dict[str, Any]:
    """Return how a cluster would do, and what its driver has to do."""
    simulated = Simulation(workers, seconds=600.0, spread=0.5, lifetime=6 * 3600.0)
    with made_store() as (store, _):
        units = plan_units(specs_of(runs), range(SEEDS), store, device="cpu")
        began = time.perf_counter()
        failures = execute(
            units,
            store,
            train,
            device="cpu",
            command=COMMAND,
            listener=Silent(),
            cluster=OnPaper("ray", simulated=simulated),
        )
        own = time.perf_counter() - began - simulated.asleep
        addresses = [row.address for row in store.rows()]
    assert len(set(addresses)) == len(addresses) == len(units), "a run is lost, or stored twice"
    useful = simulated.worked - simulated.redone
    return {
        "workers": workers,
        "runs": len(addresses),
        "failures": failures,
        "seconds of a run": simulated.seconds,
        "hours until a worker dies": simulated.lifetime / 3600,
        "deaths": simulated.deaths,
        "hours": simulated.now / 3600,
        "hours if nobody waited or died": useful / workers / 3600,
        "share of the work done twice": simulated.redone / simulated.worked,
        "driver seconds": own,
        "share of the time that the driver works": own / simulated.now,
    }


def study(runs: int) -> list[dict[str, Any]]:
    """Return what planning, storing and the report cost a run, for a tenth of the runs and all."""
    return [_study(count) for count in (runs // 10, runs)]


def _study(runs: int) -> dict[str, Any]:
    specs = specs_of(runs)
    specs[0].identity()  # the data is read once
    with made_store() as (store, path):
        units, *plan = timed(lambda: plan_units(specs, range(SEEDS), store, device="cpu"))
        cluster = Simulation(100, seconds=60.0, spread=0.5, lifetime=1e12)
        where = OnPaper("ray", simulated=cluster, shared=path.parent / "shared")
        _, *stored = timed(
            lambda: execute(
                units,
                store,
                train,
                device="cpu",
                command=COMMAND,
                listener=Silent(),
                checkpoint_every=60.0,  # whose files are looked for, and removed, with each run
                cluster=where,
            )
        )
        left, *found = timed(lambda: plan_units(specs, range(SEEDS), store, device="cpu"))
        assert not left
        size = path.stat().st_size
        words = [sys.executable, "-m", "engram", "report", "--store", str(path)]
        _, *page = timed(lambda: subprocess.run(words, check=True, capture_output=True))
    own = [stored[0] - cluster.asleep, stored[1] - cluster.asleep_cpu]
    return {
        "runs": len(units),
        "milliseconds to plan a run": [1000 * seconds / len(units) for seconds in plan],
        "milliseconds to find a run stored": [1000 * seconds / len(units) for seconds in found],
        "milliseconds to store a run": [1000 * seconds / len(units) for seconds in own],
        "seconds for the report": page,
        "megabytes of the store": size / 1e6,
        "others at work": os.getloadavg()[0],
    }


# What they share.


@contextmanager
def made_store() -> Iterator[tuple[Store, Path]]:
    """Yield an empty store on the disk of the working folder, and its path."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "store.sqlite"
        with Store(path) as store:
            yield store, path


def timed(work: Callable[[], _Made]) -> tuple[_Made, float, float]:
    """Return what work returns, its seconds, and those of the CPU, processes it starts included."""
    began, cpu = time.perf_counter(), _cpu_seconds()
    made = work()
    return made, time.perf_counter() - began, _cpu_seconds() - cpu


def _cpu_seconds() -> float:
    both = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def note(path: Path, name: str, numbers: object) -> None:
    """Put numbers beside the others in a file."""
    held = json.loads(path.read_text()) if path.exists() else {}
    stamped = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "versions": made_with()}
    held[name] = {**stamped, "cores": len(os.sched_getaffinity(0)), "measured": numbers}
    path.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="What thousands of runs cost the driver.")
    parser.add_argument("what", choices=("study", "paper"))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--json", type=Path, help="where to keep the numbers")
    given = parser.parse_args()
    if given.what == "study":
        numbers: Any = study(given.runs or 10_000)
    else:
        numbers = paper(given.workers or 1000, given.runs or 10_000)
    print(json.dumps(numbers, indent=1))
    if given.json:
        note(given.json, given.what, numbers)


if __name__ == "__main__":
    main()
