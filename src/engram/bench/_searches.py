"""The trials of a search as one stack, and one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engram.bench._events import Timing, microseconds
from engram.bench._permuted import EARLIER, EXAMPLES, NAME
from engram.protocol import Spec, build_stream, lesson, tuning_specs

_METHODS = ("van", "mega-i", "ewc", "prog-nn")


def searches(
    device: str,
    chosen: Sequence[str] = _METHODS,
    *,
    seeds: int = 3,
    examples: int = EXAMPLES,
) -> list[dict[str, Any]]:
    """Measure methods in the last of the tuning tasks, in every trial of their grids at once."""
    rows = []
    for name in chosen:
        trials = tuning_specs(NAME, name, examples=examples)
        alone = _measured(trials[:1], seeds, device)
        together = _measured(trials, seeds, device)
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


def _measured(trials: Sequence[Spec], seeds: int, device: str) -> Timing:
    """Measure trials that train as one, each with so many seeds."""
    runs = [(trial, seed) for trial in trials for seed in range(seeds)]
    stream = build_stream(trials[0], [seed for _, seed in runs], device)
    with lesson([trial for trial, _ in runs], stream, device=device) as held:
        steps = held.last_task(EARLIER)
        return microseconds(steps.take, len(steps))
