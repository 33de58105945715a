"""``engram tune``: every point of a grid is tried, and the best is chosen."""

from __future__ import annotations

import sys
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from engram.app import runs
from engram.app.cli.choices import score_text, values_text, with_store
from engram.app.cli.console import print_json, stdout_console
from engram.app.cli.options import CHECKPOINT_EVERY, parse_settings
from engram.app.cli.progress import training
from engram.app.cli.requests import TuningRequest, network_given, network_words
from engram.app.studies import keep_choice, search_result
from engram.app.terminal import one_line
from engram.errors import EngramError
from engram.lab import protocol


def tune(
    request: TuningRequest,
    *,
    store: Path,
    as_json: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
    cluster: runs.Cluster = runs.LOCAL,
) -> int:
    """Run every trial that the store does not have, store the choice and print it.

    Returns the exit code. Where a trial failed nothing is chosen; one that diverged is a trial.
    """
    runs.check_seeds(request.seeds)
    runs.check_interval(checkpoint_every)
    specs = protocol.tuning_specs(
        request.benchmark,
        request.method,
        tasks=request.tasks,
        examples=request.examples,
        passes=request.passes,
        overrides=parse_settings(request.settings),
        network=network_given(request.network, request.network_settings),
    )
    device = cluster.device(request.device)
    runs.check_disk(store, specs[0].tasks, request.seeds * len(specs))
    specs[0].identity()  # missing data is reported before there is a store
    protocol.check_network(specs[0])
    with runs.Store(store) as opened:
        seeds = range(request.seeds)
        units = runs.plan_units(
            specs,
            seeds,
            opened,
            device=device,
            deterministic=request.deterministic,
            workers=cluster.workers or 1,
        )
        with training(units, checkpoint_every, cluster) as listener:
            failures = runs.execute(
                units,
                opened,
                protocol.run,
                device=device,
                command=request.command,
                listener=listener,
                checkpoint_every=checkpoint_every,
                cluster=cluster,
            )
        if failures:
            print("Nothing is chosen: the same command tries what failed again.", file=sys.stderr)
            return 1
        names = [*protocol.tuned_settings(specs[0])]
        choice = search_result(specs, names, len(seeds), opened, request.command)
        if choice is None:
            raise EngramError(f"Every trial of {specs[0].method} has a seed that diverged.")
        keep_choice(choice, opened)
    words = ["engram", "run", request.benchmark, request.method, "--tuned"]
    words += network_words(request.network, request.network_settings)
    _print(choice, with_store(words, store), as_json)
    return 0


def _print(choice: runs.Choice, usage: str, as_json: bool) -> None:
    if as_json:
        print_json({**choice.as_json(), "remark": _remark(choice)})
        return
    best, *others = choice.ranking
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in best.settings:
        table.add_column(name, justify="right")
    table.add_column("average accuracy %", justify="right")
    table.add_column("")
    marks = {id(best): "chosen"} | {id(other): "runner-up" for other in others[:1]}
    for trial in choice.trials:
        cells = (*map(str, trial.settings.values()), score_text(trial), marks.get(id(trial), ""))
        table.add_row(*map(Text, cells))
    stdout_console().print(table)
    if remark := _remark(choice):
        print(remark)
    print(one_line(f"Chosen: {values_text(best.settings)}. To use it: {usage}"))


def _remark(choice: runs.Choice) -> str | None:
    """Return what the numbers alone do not say, if anything."""
    best, *others = choice.ranking
    equals = [values_text(other.settings) for other in others if other.score == best.score]
    if equals:
        return f"Of equals the smallest is chosen; as good: {', '.join(equals)}."
    if not others:
        return None
    if (others[0].score or 0) > (best.score or 0):
        return (
            f"{values_text(others[0].settings)} has the best mean, by no more than one standard "
            "error of the difference: of what is as good the smallest is chosen."
        )
    if best.error is None:
        return "One seed says nothing of the noise: give --seeds 3 or more."
    behind = (best.score or 0) - (others[0].score or 0)
    if behind > best.error:
        return None
    return (
        f"The runner-up, {values_text(others[0].settings)}, is {behind:.2f} behind, within one "
        f"standard error ({best.error:.2f}): the seeds do not tell the two apart."
    )
