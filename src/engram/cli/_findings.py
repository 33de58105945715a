"""``engram reproduce``, ``results`` and ``report``. What is slow to import is imported inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli._options import (
    CHECKPOINT_EVERY,
    DEFAULT_STORE,
    CheckpointOption,
    DataOption,
    DeviceOption,
    JsonOption,
    StoreOption,
    importing,
    one_sentence,
    use_data,
)


def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            help="table-1, table-2, ablation, figure-metrics, figure-accuracy, figure-lca, "
            "limited-examples, many-tasks, k2, all, or a .toml file of your own."
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each method; as the study has it unless given.")
    ] = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, on what, for how long; no run.")
    ] = False,
) -> None:
    """Run what the store lacks of a study, then write the report.

    Results are stored as they are finished: what was stopped goes on with the same command.
    """
    with one_sentence():
        use_data(data)
        with importing():
            import engram.protocol
            from engram.cli import _reproduce

        code = _reproduce.reproduce(
            target,
            engram.protocol,
            store=store,
            device=device,
            seeds=seeds,
            dry_run=dry_run,
            checkpoint_every=checkpoint_every,
        )
        raise typer.Exit(code)


def results(
    store: StoreOption = DEFAULT_STORE,
    benchmark: Annotated[str | None, typer.Option(help="Only those on this benchmark.")] = None,
    method: Annotated[str | None, typer.Option(help="Only those of this method.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Only those on these tasks: training or tuning.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Only those made on this device.")] = None,
    json: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print a line of CSV for each run.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write those that are shown as JSON-lines.")
    ] = None,
    merge: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="First take in those of a store, or JSON-lines."),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Hold everything in the store to its checksums and say what is damaged; with "
            "--export, write what is whole.",
        ),
    ] = False,
) -> None:
    """Show the results in a store; take in others, or write a file."""
    with one_sentence():
        with importing():
            import engram.protocol
            from engram.cli import _results
            from engram.cli._chosen_results import Chosen

        if verify:
            chosen = {"benchmark": benchmark, "method": method, "split": split, "device": device}
            others = {**chosen, "merge": merge, "json": json or None, "csv": csv or None}
            raise typer.Exit(_results.verify(store, export=export, others=others))
        _results.show(
            store,
            engram.protocol,
            chosen=Chosen(benchmark, method, split, device),
            as_json=json,
            as_csv=csv,
            export=export,
            merge=merge,
        )


def report(
    store: StoreOption = DEFAULT_STORE,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The page; report.html beside the store unless given."),
    ] = None,
) -> None:
    """Write an HTML page of all results in a store, and figures.

    The figures, for papers, lie in a folder beside the page.
    """
    with one_sentence():
        with importing():
            import engram.protocol
            from engram.cli import _report

        _report.write(store, engram.protocol, out=out)
