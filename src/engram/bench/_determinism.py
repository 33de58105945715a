"""What it costs that a GPU computes the same bits each time."""

from __future__ import annotations

import multiprocessing
from typing import Any

from engram.bench._events import clock_of, microseconds
from engram.bench._images import image_step
from engram.bench._noise import CIFAR, on_noise, pictures
from engram.bench._permuted import EARLIER, EXAMPLES, permuted
from engram.protocol import prepare_workspace

_RUNS = 5


def determinism(device: str) -> list[dict[str, Any]]:
    """Measure MEGA-II's step with and without the switch, on Permuted MNIST and Split CIFAR.

    A GPU has to be told before it is first used, so that each is measured in a process of its own.
    """
    usual, strict = (_in_a_fresh_process(device, switch) for switch in (False, True))
    return [
        {
            "benchmark": name,
            "runs": _RUNS,
            "microseconds": usual[name],
            "deterministic": strict[name],
            "ratio": strict[name] / usual[name],
        }
        for name in usual
    ]


def _in_a_fresh_process(device: str, deterministic: bool) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_steps, (device, deterministic))


def _steps(device: str, deterministic: bool) -> dict[str, float]:
    if deterministic:
        prepare_workspace(device)
    with clock_of(device):
        return _measured(device, deterministic)


def _measured(device: str, deterministic: bool) -> dict[str, float]:
    with permuted(
        "mega-ii", examples=EXAMPLES, runs=_RUNS, device=device, deterministic=deterministic
    ) as lesson:
        steps = lesson.last_task(EARLIER)
        small = microseconds(steps.take, len(steps)).median
    with on_noise(
        CIFAR,
        pictures(CIFAR),
        precision="tf32",
        runs=_RUNS,
        device=device,
        deterministic=deterministic,
    ) as lesson:
        large = image_step(lesson, CIFAR).median
    return {"permuted-mnist": small, "split-cifar": large}
