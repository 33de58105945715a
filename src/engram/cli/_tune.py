"""``engram tune``."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from engram import report, runs
from engram.cli._console import stdout_console
from engram.cli._run import execute
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.protocol import Spec
    from engram.settings import Scalar


@dataclass(frozen=True)
class Trial:
    """One point of the grid and what it scored; None where a seed diverged or is missing."""

    settings: dict[str, Scalar]
    score: float | None
    values: list[float | None]


def search(
    specs: Sequence[Spec], seeds: int, *, device: str, store: Path, as_json: bool = False
) -> int:
    """Run every trial that the store does not have, print the scores and the choice."""
    import engram.protocol

    runs.check_seeds(seeds)
    found = runs.resolve_device(device)
    runs.check_disk(store, specs[0].tasks, seeds * len(specs))
    with runs.Store(store) as opened:
        units = runs.plan_units(specs, range(seeds), opened, engram.protocol, device=found)
        command = _command(specs[0], seeds, device)
        failures = execute(units, opened, engram.protocol, command, found)
        trials = [_trial(spec, seeds, opened) for spec in specs]
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise EngramError(f"No trial of {specs[0].method} came to its end on every seed.")
    best = max(scored, key=lambda trial: trial.score or 0)
    if as_json:
        print(json.dumps({"chosen": best.settings, "trials": [vars(t) for t in trials]}, indent=1))
    else:
        _print(trials, best)
    return 1 if failures else 0


def _command(spec: Spec, seeds: int, device: str) -> str:
    words = ["engram", "tune", spec.benchmark, spec.method, "--seeds", str(seeds)]
    words += ["--tasks", str(spec.tasks), "--examples", str(spec.examples), "--device", device]
    return shlex.join(words)


def _trial(spec: Spec, seeds: int, store: runs.Store) -> Trial:
    from engram.protocol import tuned_settings

    rows = [store.newest(runs.address(spec.identity(), seed)) for seed in range(seeds)]
    values = [None if row is None else report.measure(row, "average_accuracy") for row in rows]
    finished = [value for value in values if value is not None]
    score = statistics.fmean(finished) if len(finished) == seeds else None
    return Trial(tuned_settings(spec), score, values)


def _print(trials: Sequence[Trial], best: Trial) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in best.settings:
        table.add_column(name, justify="right")
    table.add_column("average accuracy %", justify="right")
    table.add_column("")
    for trial in trials:
        score = "diverged" if trial.score is None else f"{trial.score:.2f}"
        values = (str(value) for value in trial.settings.values())
        table.add_row(*values, score, "chosen" if trial is best else "")
    stdout_console().print(table)
