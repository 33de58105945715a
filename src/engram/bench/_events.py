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
    take: Callable[[int], object], steps: int, *, warm_up: int = 20, blocks: int = 9
) -> Timing:
    """Take steps 0, 1, ... in order, and measure all after the ``warm_up``.

    The host launches the steps of a block one after another and waits for nothing, as in a run;
    events before and after a block are the GPU's own.
    """
    length = (steps - warm_up) // blocks
    if length < 1:
        raise ValueError(f"{steps} steps are too few for {blocks} blocks after {warm_up}.")
    for step in range(warm_up):
        take(step)
    marks = [
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(blocks + 1)
    ]
    marks[0].record()
    for block in range(blocks):
        for step in range(length):
            take(warm_up + block * length + step)
        marks[block + 1].record()
    torch.cuda.synchronize()
    taken = [1e3 * marks[block].elapsed_time(marks[block + 1]) / length for block in range(blocks)]
    return Timing(statistics.median(taken), min(taken), max(taken))
