"""Steps on a GPU: stacks of runs, searches, captured methods, replays, images, determinism."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from typing import Any

import torch

from engram.lab.bench.cpu import USUAL, task_by_task
from engram.lab.bench.products import captured_products
from engram.lab.bench.sessions import (
    CIFAR,
    CUB,
    EARLIER,
    EXAMPLES,
    NAME,
    PRECISIONS,
    Later,
    Noise,
    on_noise,
    permuted,
    pictures,
)
from engram.lab.bench.timing import Timing, clock_of, microseconds
from engram.lab.engine import TOGETHER, WARM_UP
from engram.lab.networks import MLP, rounding
from engram.lab.protocol import (
    BenchmarkSession,
    Spec,
    benchmark_session,
    build_stream,
    prepare_workspace,
    tuning_specs,
)

_STACK_BOUNDS = {  # (precision, runs): microseconds that are good enough
    ("float32", 5): "150 a step",
    ("float32", 64): "12 a run's step",
    ("tf32", 64): "9 a run's step",
}
_SEARCHED = ("van", "mega-i", "ewc", "prog-nn")
_CAPTURED_BOUNDS = {"gem": 8.0}  # times MEGA-II
_REPLAYED = ("van", "mega-ii")
# A benchmark, how many runs at once, and milliseconds of one run's step that are good enough.
_IMAGES: tuple[tuple[Noise, tuple[int, ...], dict[str, float]], ...] = (
    (CIFAR, (1, 5), {"tf32": 7.0, "bfloat16": 5.5}),
    (CUB, (1,), {"tf32": 40.0, "bfloat16": 26.0}),
)
_DETERMINISM_RUNS = 5


def stacks(
    device: str, runs: Sequence[int] = (1, 5, 20, 64), examples: int = EXAMPLES
) -> list[dict[str, Any]]:
    """Measure MEGA-II in the last of 17 tasks, in either precision."""
    rows = []
    for precision in PRECISIONS:
        for count in runs:
            with permuted(
                "mega-ii", examples=examples, runs=count, device=device, precision=precision
            ) as session:
                rows.append(_stack_row(session, precision, count, device))
    return rows


def _stack_row(session: BenchmarkSession, precision: str, runs: int, device: str) -> dict[str, Any]:
    steps = len(session.last_task(EARLIER))
    taken = microseconds(session.take, steps)
    network, settings = session.method.network, session.method.settings
    assert isinstance(network, MLP)
    batches = (settings.reference_batch, settings.batch_size)
    with rounding(tf32=network.tf32):
        products = captured_products(network.sizes, batches, runs, device)
    floor = microseconds(products, steps).median
    return {
        "precision": precision,
        "runs": runs,
        "microseconds": taken.median,
        "lowest": taken.lowest,
        "highest": taken.highest,
        "each": taken.median / runs,
        "products": floor,
        "share": floor / taken.median,
        "bound": _STACK_BOUNDS.get((precision, runs)),
    }


def searches(
    device: str,
    chosen: Sequence[str] = _SEARCHED,
    *,
    seeds: int = 3,
    examples: int = EXAMPLES,
) -> list[dict[str, Any]]:
    """Measure methods in the last of the tuning tasks, in every trial of their grids at once."""
    rows = []
    for name in chosen:
        trials = tuning_specs(NAME, name, examples=examples)
        alone = _search_step(trials[:1], seeds, device)
        together = _search_step(trials, seeds, device)
        runs = len(trials) * seeds
        rows.append(
            {
                "method": name,
                "trials": len(trials),
                "runs": runs,
                "microseconds": together.median,
                "lowest": together.lowest,
                "highest": together.highest,
                "each": together.median / runs,
                "alone": alone.median / seeds,
                "ratio": alone.median * len(trials) / together.median,
            }
        )
    return rows


def _search_step(trials: Sequence[Spec], seeds: int, device: str) -> Timing:
    """Measure trials that train as one, each with so many seeds."""
    runs = [(trial, seed) for trial in trials for seed in range(seeds)]
    stream = build_stream(trials[0], [seed for _, seed in runs], device)
    with benchmark_session([trial for trial, _ in runs], stream, device=device) as session:
        return microseconds(session.take, len(session.last_task(EARLIER)))


def captured(
    device: str, chosen: Sequence[str] | None = None, *, runs: int = 5, examples: int = EXAMPLES
) -> list[dict[str, Any]]:
    """Measure each method that can be captured in the last of 17 tasks, for R runs at once."""
    times: dict[str, Timing] = {}
    for name in dict.fromkeys([USUAL, *(chosen or task_by_task())]):
        with permuted(name, examples=examples, runs=runs, device=device) as session:
            if session.method.capturable:
                times[name] = microseconds(session.take, len(session.last_task(EARLIER)))
    rows = [
        {
            "method": name,
            "runs": runs,
            "microseconds": taken.median,
            "lowest": taken.lowest,
            "highest": taken.highest,
            "ratio": taken.median / times[USUAL].median,
            "bound": _CAPTURED_BOUNDS.get(name),
        }
        for name, taken in times.items()
    ]
    return sorted(rows, key=lambda row: float(row["microseconds"]))


def replays(
    device: str,
    counts: Sequence[int] = (1, 2, 4, 8),
    *,
    runs: int = 5,
    examples: int = EXAMPLES,
) -> list[dict[str, Any]]:
    """Measure two methods in the last of 17 tasks with so many steps to a replay."""
    rows = []
    for method in _REPLAYED:
        for count in counts:
            with permuted(method, examples=examples, runs=runs, device=device) as session:
                loop = session.last_task(EARLIER)
                loop.together = count
                recording = _first_replay(session, count, device)
                first = WARM_UP + count
                taken = microseconds(Later(session, first), len(loop) - first)
            rows.append(
                {
                    "method": method,
                    "runs": runs,
                    "together": count,
                    "microseconds": taken.median,
                    "lowest": taken.lowest,
                    "highest": taken.highest,
                    "recording": recording,
                    "chosen": "yes" if count == TOGETHER else None,
                }
            )
    return rows


def _first_replay(session: BenchmarkSession, count: int, device: str) -> float:
    """Take the first steps, and return the milliseconds of capturing and replaying the next."""
    for step in range(WARM_UP):
        session.take(step)
    _wait(device)
    started = time.perf_counter()
    session.take(WARM_UP, WARM_UP + count)
    _wait(device)
    return 1e3 * (time.perf_counter() - started)


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def images(device: str) -> list[dict[str, Any]]:
    """Measure MEGA-II in the last of 17 tasks of every benchmark of images."""
    rows = []
    for kind, stacks, bounds in _IMAGES:
        drawn = pictures(kind)
        for precision, bound in bounds.items():
            for runs in stacks:
                with on_noise(
                    kind, drawn, precision=precision, runs=runs, device=device
                ) as session:
                    taken = image_step(session, kind)
                rows.append(
                    {
                        "benchmark": kind.benchmark,
                        "precision": precision,
                        "runs": runs,
                        "milliseconds": taken.median / 1e3,
                        "lowest": taken.lowest / 1e3,
                        "highest": taken.highest / 1e3,
                        "each": taken.median / 1e3 / runs,
                        "bound": bound,
                    }
                )
    return rows


def image_step(session: BenchmarkSession, kind: Noise) -> Timing:
    """Measure the steps of the last task, which are few: 30 with Split CUB."""
    steps = len(session.last_task(kind.earlier))
    return microseconds(session.take, steps, warm_up=5, blocks=5)


def determinism(device: str) -> list[dict[str, Any]]:
    """Measure MEGA-II's step with and without the switch, on Permuted MNIST and Split CIFAR.

    It has to be set before a GPU is first used, so that each is measured in a process of its own.
    """
    usual, strict = (_in_a_fresh_process(device, switch) for switch in (False, True))
    return [
        {
            "benchmark": name,
            "runs": _DETERMINISM_RUNS,
            "microseconds": usual[name],
            "deterministic": strict[name],
            "ratio": strict[name] / usual[name],
        }
        for name in usual
    ]


def _in_a_fresh_process(device: str, deterministic: bool) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_steps_with_switch, (device, deterministic))


def _steps_with_switch(device: str, deterministic: bool) -> dict[str, float]:
    if deterministic:
        prepare_workspace(device)
    with clock_of(device):
        return _both_benchmarks(device, deterministic)


def _both_benchmarks(device: str, deterministic: bool) -> dict[str, float]:
    with permuted(
        "mega-ii",
        examples=EXAMPLES,
        runs=_DETERMINISM_RUNS,
        device=device,
        deterministic=deterministic,
    ) as session:
        small = microseconds(session.take, len(session.last_task(EARLIER))).median
    with on_noise(
        CIFAR,
        pictures(CIFAR),
        precision="tf32",
        runs=_DETERMINISM_RUNS,
        device=device,
        deterministic=deterministic,
    ) as session:
        large = image_step(session, CIFAR).median
    return {"permuted-mnist": small, "split-cifar": large}
