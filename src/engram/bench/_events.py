"""What steps take on a GPU, by its own clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch


class Timing(NamedTuple):
    """Microseconds of a step: the median of several blocks of steps, and the ends."""

    median: float
    lowest: float
    highest: float


def clock_of(device: str) -> AbstractContextManager[object]:
    """Let a GPU be the one whose clock measures; that of a CPU needs nothing."""
    return torch.cuda.device(device) if torch.device(device).type == "cuda" else nullcontext()


def microseconds(
    take: Callable[[int, int], int], steps: int, *, warm_up: int = 21, blocks: int = 9
) -> Timing:
    """Take steps 0, 1, ... in order, and measure all after the ``warm_up``.

    ``take(step, stop)`` takes a step, or several before ``stop``, and returns the next. The host
    launches the steps of a block one after another and waits for nothing, as in a run; events
    before and after a block are the GPU's own. The warm-up is of an odd number of steps, so that
    replays of one and of two are recorded in it.
    """
    length = (steps - warm_up) // blocks
    if length < 1:
        raise ValueError(f"{steps} steps are too few for {blocks} blocks after {warm_up}.")
    _take_all(take, 0, warm_up)
    marks = [
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(blocks + 1)
    ]
    marks[0].record()
    for block in range(blocks):
        first = warm_up + block * length
        _take_all(take, first, first + length)
        marks[block + 1].record()
    torch.cuda.synchronize()
    taken = [1e3 * marks[block].elapsed_time(marks[block + 1]) / length for block in range(blocks)]
    return Timing(statistics.median(taken), min(taken), max(taken))


def _take_all(take: Callable[[int, int], int], step: int, stop: int) -> None:
    while step < stop:
        step = take(step, stop)
