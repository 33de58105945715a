"""MEGA-II's step with residual networks, on noise."""

from __future__ import annotations

from typing import Any

from engram.bench._events import Timing, microseconds
from engram.bench._noise import CIFAR, CUB, Noise, on_noise, pictures
from engram.protocol import Lesson

# A benchmark, how many runs at once, and milliseconds of one run's step that are good enough.
_WORK: tuple[tuple[Noise, tuple[int, ...], dict[str, float]], ...] = (
    (CIFAR, (1, 5), {"tf32": 7.0, "bfloat16": 5.5}),
    (CUB, (1,), {"tf32": 40.0, "bfloat16": 26.0}),
)


def images(device: str) -> list[dict[str, Any]]:
    """Measure MEGA-II in the last of 17 tasks of every benchmark of images."""
    rows = []
    for kind, stacks, bounds in _WORK:
        drawn = pictures(kind)
        for precision, bound in bounds.items():
            for runs in stacks:
                with on_noise(kind, drawn, precision=precision, runs=runs, device=device) as lesson:
                    taken = image_step(lesson, kind)
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


def image_step(lesson: Lesson, kind: Noise) -> Timing:
    """Measure the steps of the last task, which are few: 30 with Split CUB."""
    steps = lesson.last_task(kind.earlier)
    return microseconds(steps.take, len(steps), warm_up=5, blocks=5)
