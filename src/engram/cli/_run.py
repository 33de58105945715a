"""``engram run``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engram import runs
from engram.cli._console import stdout_console
from engram.cli._progress import progress_listener
from engram.cli._request import Request, specify

if TYPE_CHECKING:
    from engram.protocol import Spec

Executor = Callable[..., int]  # with the parameters of runs.execute


def train(
    request: Request,
    laboratory: runs.Laboratory,
    *,
    store: Path,
    again: bool = False,
    as_json: bool = False,
    executor: Executor = runs.execute,
) -> int:
    """Check, train what is missing, store it, print the results; return the exit code."""
    runs.check_seeds(request.seeds)
    specs = specify(request, laboratory)
    device = runs.resolve_device(request.device)
    runs.check_disk(store, specs[0].tasks, request.seeds * len(specs))
    with runs.Store(store) as opened:
        seeds = range(request.seeds)
        units = runs.plan_units(specs, seeds, opened, laboratory, device=device, again=again)
        if not units:
            print("All of it is in the store already.", file=sys.stderr)
        failures = execute(units, opened, laboratory, request.command, device, executor)
        found = [
            row
            for spec in specs
            for seed in seeds
            if (row := opened.newest(runs.address(spec.identity(), seed))) is not None
        ]
    _print(found, specs, laboratory, store.parent, as_json)
    return 1 if failures else 0


def execute(
    units: Sequence[runs.Unit],
    store: runs.Store,
    laboratory: runs.Laboratory,
    command: str,
    device: str,
    executor: Executor = runs.execute,
) -> int:
    """Train the units with a progress bar; return how many failed."""
    try:
        with progress_listener(units) as listener:
            return executor(
                units,
                store,
                laboratory.run,
                device=device,
                command=command,
                listener=listener,
            )
    except KeyboardInterrupt:
        message = "Stopped: what is finished is stored, and the same command does the rest."
        print(message, file=sys.stderr)
        raise


def _print(
    rows: Sequence[runs.Row],
    specs: Sequence[Spec],
    laboratory: runs.Laboratory,
    folder: Path,
    as_json: bool,
) -> None:
    from engram import report

    summaries = report.summarise(rows)
    standard = report.Standard(laboratory)
    if as_json:
        entries = [report.as_json(summary) for summary in summaries]
        print(json.dumps({"benchmark": specs[0].benchmark, "results": entries}, indent=1))
    elif summaries:
        stdout_console().print(report.results_table(summaries, standard))
    for summary in summaries:
        if told := report.told_failures(summary):
            print(f"{standard.label(summary)}: {told}.", file=sys.stderr)
    plot = report.save_plot(summaries, standard, folder)
    if plot is not None:
        print(f"Plot: {plot}", file=sys.stderr if as_json else sys.stdout)
