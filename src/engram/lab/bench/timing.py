"""How long steps take: by turns on one CPU thread, and on a GPU by its own clock."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

Turn = Callable[[], float]
"""Takes a turn and returns the seconds of one step in it."""

Times = dict[str, list[list[float]]]
"""Seconds of a step, by candidate and block."""

_SELDOM = 10


def timed(step: Callable[[], object], repeats: int = 1) -> Turn:
    """Return turns of so many steps, counted in the thread's own CPU time."""

    def turn() -> float:
        start = time.thread_time()
        for _ in range(repeats):
            step()
        return (time.thread_time() - start) / repeats

    return turn


def take_turns(
    candidates: Mapping[str, Turn], blocks: int, rounds: int, *, seldom: Collection[str] = ()
) -> Times:
    """Let the candidates take turns, in every round one each; a first round is not counted.

    Those that are called ``seldom``, because they are slow, have a turn in every tenth round.
    """
    times: Times = {name: [[] for _ in range(blocks)] for name in candidates}
    for turn in candidates.values():
        turn()
    for block, number in itertools.product(range(blocks), range(rounds)):
        for name, turn in candidates.items():
            if name not in seldom or number % _SELDOM == 0:
                times[name][block].append(turn())
    return times


def median(times: Times, name: str) -> float:
    """Return the median seconds of a candidate's step over all blocks."""
    return statistics.median(itertools.chain(*times[name]))


def ratio(times: Times, name: str, beside: str) -> dict[str, Any]:
    """Set one candidate beside another, block by block: the median of the ratios, and the ends."""
    blocks = zip(times[name], times[beside], strict=True)
    ratios = [statistics.median(mine) / statistics.median(others) for mine, others in blocks]
    return {
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


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
    replays of one and of two are captured in it.
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
