"""``engram run``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engram import report, runs
from engram.cli._choices import count
from engram.cli._console import print_json, stdout_console
from engram.cli._options import CHECKPOINT_EVERY
from engram.cli._progress import progress_listener
from engram.cli._request import Request, specify
from engram.cli._signals import on_stop
from engram.terminal import one_line

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
    tensorboard: Path | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    executor: Executor = runs.execute,
) -> int:
    """Check, train what is missing, store it, print the results; return the exit code.

    ``tensorboard`` is a folder to write scalars to as well. Runs are saved every
    ``checkpoint_every`` seconds; 0: never.
    """
    runs.check_seeds(request.seeds)
    runs.check_interval(checkpoint_every)
    if tensorboard is not None:
        report.check_tensorboard()
    specs = specify(request, laboratory)
    device = runs.resolve_device(request.device)
    runs.check_disk(store, specs[0].tasks, request.seeds * len(specs))
    identities = [spec.identity() for spec in specs]  # data that is missing is told before a store
    with runs.Store(store) as opened:
        seeds = range(request.seeds)
        units = runs.plan_units(
            specs,
            seeds,
            opened,
            laboratory,
            device=device,
            again=again,
            record_every=request.record_every,
            deterministic=request.deterministic,
        )
        if not units:
            print("All of it is in the store already.", file=sys.stderr)
        failures = execute(
            units, opened, laboratory, request.command, device, executor, checkpoint_every
        )
        found = [
            row
            for identity in identities
            for seed in seeds
            if (row := opened.newest(runs.address(identity, seed))) is not None
        ]
    with on_stop("Stopped: what is finished is stored, and the same command shows and plots it."):
        _print(found, specs, laboratory, store.parent, as_json)
        if tensorboard is not None:
            written = report.write_scalars(found, tensorboard)
            told = f"TensorBoard: {count(written, 'run')} new in {one_line(tensorboard)}"
            print(told, file=sys.stderr)
    return 1 if failures else 0


def execute(
    units: Sequence[runs.Unit],
    store: runs.Store,
    laboratory: runs.Laboratory,
    command: str,
    device: str,
    executor: Executor = runs.execute,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> int:
    """Train the units with a progress bar, saved every so many seconds; return how many failed."""
    checkpoints = runs.Checkpoints.beside(store, checkpoint_every, laboratory)
    rest = "does the rest" if checkpoints is None else "goes on from where the rest was saved"
    message = f"Stopped: what is finished is stored, and the same command {rest}."
    with on_stop(message), progress_listener(units) as listener:
        return executor(
            units,
            store,
            laboratory.run,
            device=device,
            command=command,
            listener=listener,
            checkpoints=checkpoints,
        )


def _print(
    rows: Sequence[runs.Row],
    specs: Sequence[Spec],
    laboratory: runs.Laboratory,
    folder: Path,
    as_json: bool,
) -> None:
    summaries = report.summarise(rows)
    defaults = report.PaperDefaults(laboratory)
    if as_json:
        entries = [report.as_json(summary) for summary in summaries]
        print_json({"benchmark": specs[0].benchmark, "results": entries})
    elif summaries:
        stdout_console().print(report.results_table(summaries, defaults))
        for sentence in report.majority_baseline(summaries):
            print(sentence)
    for summary in summaries:
        if message := report.failure_message(summary):
            print(f"{defaults.label(summary)}: {message}.", file=sys.stderr)
    plot = report.save_plot(summaries, defaults, folder)
    if plot is not None:
        print(f"Plot: {one_line(plot)}", file=sys.stderr if as_json else sys.stdout)
