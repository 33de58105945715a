"""What it gains that several steps are one replay, and what it costs to record them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from engram.bench._events import microseconds
from engram.bench._permuted import EARLIER, EXAMPLES, permuted
from engram.engine import TOGETHER, WARM_UP, Recorded

_METHODS = ("van", "mega-ii")


def replays(
    device: str,
    counts: Sequence[int] = (1, 2, 4, 8),
    *,
    runs: int = 5,
    examples: int = EXAMPLES,
) -> list[dict[str, Any]]:
    """Measure two methods in the last of 17 tasks with so many steps to a replay."""
    rows = []
    for method in _METHODS:
        for count in counts:
            with permuted(method, examples=examples, runs=runs, device=device) as lesson:
                steps = lesson.last_task(EARLIER)
                steps.together = count
                recording = _first_replay(steps, device)
                taken = microseconds(_Later(steps, WARM_UP + count), len(steps) - WARM_UP - count)
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


class _Later:
    """Steps from a number on, which are counted from 0."""

    def __init__(self, steps: Recorded, first: int) -> None:
        self._steps, self._first = steps, first

    def __call__(self, step: int, stop: int) -> int:
        return self._steps.take(step + self._first, stop + self._first) - self._first


def _first_replay(steps: Recorded, device: str) -> float:
    """Take the first steps, and return the milliseconds of recording and replaying the next."""
    for step in range(WARM_UP):
        steps.take(step)
    _wait(device)
    started = time.perf_counter()
    steps.take(WARM_UP, WARM_UP + steps.together)
    _wait(device)
    return 1e3 * (time.perf_counter() - started)


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
