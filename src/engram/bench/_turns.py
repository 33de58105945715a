"""Candidates that take turns on one thread, so that whatever disturbs one disturbs all."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

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
