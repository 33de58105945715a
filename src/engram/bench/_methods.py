"""A step of each method in a benchmark run, on one CPU thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from engram.bench._permuted import EARLIER, permuted
from engram.bench._turns import median, ratio, take_turns, timed
from engram.methods import method_entry, names

_BOUNDS = dict.fromkeys(("ewc", "pi", "mas", "rwalk"), 1.6)  # times VAN
_SLOW = ("mer", "prog-nn")
_PLAIN, USUAL = "van", "mega-ii"


def task_by_task() -> list[str]:
    """Return the methods that learn one task after another; a joint one steps as VAN does."""
    return [name for name in names() if not method_entry(name).joint]


def methods(
    chosen: Sequence[str] | None = None, *, tasks: int = 2, blocks: int = 4, rounds: int = 15
) -> list[dict[str, Any]]:
    """Measure a step of each method in the last of so many tasks, VAN and MEGA-II among them.

    From the second task on penalties pull and memories are read. The methods take turns.
    """
    wanted = dict.fromkeys([_PLAIN, USUAL, *(chosen or task_by_task())])
    with ExitStack() as stack:
        turns = {name: timed(method_step(name, tasks, stack)) for name in wanted}
        times = take_turns(turns, blocks, rounds, seldom=_SLOW)
    rows = [
        {
            "method": name,
            "task": tasks,
            "milliseconds": 1e3 * median(times, name),
            **ratio(times, name, _PLAIN),
            "beside_mega": ratio(times, name, USUAL)["ratio"],
            "bound": _BOUNDS.get(name),
        }
        for name in wanted
    ]
    return sorted(rows, key=lambda row: float(row["milliseconds"]))


def method_step(name: str, tasks: int, stack: ExitStack) -> Callable[[], None]:
    """Return a step of a method's last task, the next one each time, while the stack is open."""
    steps = stack.enter_context(permuted(name, tasks=tasks)).last_task(EARLIER)
    numbers = itertools.cycle(range(len(steps)))

    def run() -> None:
        steps.take(next(numbers))

    return run
