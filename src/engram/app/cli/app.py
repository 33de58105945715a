"""What can be typed: every command and its options. What is slow to import is imported inside."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from engram import __version__
from engram.app.cli.options import (
    CHECKPOINT_EVERY,
    DEFAULT_STORE,
    CheckpointOption,
    DataOption,
    DeterministicOption,
    DeviceOption,
    ExamplesOption,
    ExecutorOption,
    GpusOption,
    JsonOption,
    NetworkOption,
    NetworkSetOption,
    PluginOption,
    SetOption,
    SharedOption,
    ShipOption,
    SlurmOption,
    StoreOption,
    TrustOption,
    WorkersOption,
    cluster_of,
    use_data,
    use_plugins,
)
from engram.app.cli.process import importing, one_sentence
from engram.app.cli.production import adopt, erase, history, predict, rollback, train, update
from engram.app.cli.run import run
from engram.errors import EngramError

app = typer.Typer(
    help="Lifelong learning with an episodic memory: models in production, and the paper's runs.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(rich_markup_mode=None)

app.command()(run)
for _command in (train, update, predict, history, rollback, erase, adopt):
    app.command()(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"engram {__version__}")
        raise typer.Exit


@app.callback()
def _engram(
    version: Annotated[  # noqa: ARG001 (its callback does it)
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    with one_sentence():
        try:
            Path.cwd()
        except FileNotFoundError:  # of which torch would die when it is imported
            raise EngramError(
                "The folder that this is called in is gone: go to another one."
            ) from None


@app.command()
def tune(
    benchmark: Annotated[str, typer.Argument(help="Where to tune, e.g. permuted-mnist.")],
    method: Annotated[str, typer.Argument(help="One that has a grid, e.g. mega-i.")],
    seeds: Annotated[int, typer.Option(help="How many runs of each trial, seeds 0, 1, ...")] = 3,
    tasks: Annotated[int | None, typer.Option(help="Tuning tasks; three unless given.")] = None,
    examples: ExamplesOption = None,
    passes: Annotated[int, typer.Option(help="Passes over the examples of each task.")] = 1,
    settings: SetOption = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
    plugins: PluginOption = None,
    network: NetworkOption = None,
    network_settings: NetworkSetOption = None,
    store: StoreOption = DEFAULT_STORE,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    deterministic: DeterministicOption = False,
    executor: ExecutorOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = None,
    shared: SharedOption = None,
    ship_data: ShipOption = False,
    trust_plugins: TrustOption = False,
    slurm: SlurmOption = None,
    json: JsonOption = False,
) -> None:
    """Choose a method's settings on tasks that no run trains on.

    Every point of the method's grid is tried. The trials are stored, and so is the choice, the best
    average accuracy; `engram run --tuned` uses it.
    """
    with one_sentence():
        use_data(data)
        with importing():
            from engram.app.cli.requests import TuningRequest
            from engram.app.cli.tune import tune as choose
        use_plugins(plugins)

        request = TuningRequest(
            benchmark,
            method,
            seeds,
            tasks,
            examples,
            passes,
            tuple(settings or ()),
            device,
            deterministic,
            tuple(map(str, plugins or ())),
            network,
            tuple(network_settings or ()),
        )
        code = choose(
            request,
            store=store,
            as_json=json,
            checkpoint_every=checkpoint_every,
            cluster=cluster_of(
                executor, workers, gpus_per_worker, shared, ship_data, trust_plugins, slurm
            ),
        )
        raise typer.Exit(code)


@app.command()
def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            help="table-1, table-2, ablation, figure-metrics, figure-accuracy, figure-lca, "
            "limited-examples, many-tasks, k2, all, newer-methods, matched-budget, epsilon, "
            "released-code, slow-baselines, recommended, or a .toml file of your own."
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each method; as the study has it unless given.")
    ] = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
    plugins: PluginOption = None,
    network: NetworkOption = None,
    network_settings: NetworkSetOption = None,
    trust: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.py",
            help="A Python file that the study names a network of, and that may be executed.",
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="A benchmark, a method or a setting, NAME=VALUE, of the study: only that; as "
            "often as you like.",
        ),
    ] = None,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, on what, for how long; no run.")
    ] = False,
    executor: ExecutorOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = None,
    shared: SharedOption = None,
    ship_data: ShipOption = False,
    trust_plugins: TrustOption = False,
    slurm: SlurmOption = None,
) -> None:
    """Run what the store lacks of a study, then write the report.

    Results are stored as they are finished: what was stopped goes on with the same command.
    """
    with one_sentence():
        use_data(data)
        with importing():
            from engram.app.cli.reproduce import reproduce as reproduce_study
        use_plugins(plugins)

        code = reproduce_study(
            target,
            store=store,
            device=device,
            seeds=seeds,
            dry_run=dry_run,
            checkpoint_every=checkpoint_every,
            cluster=partial(
                cluster_of,
                executor,
                workers,
                gpus_per_worker,
                shared,
                ship_data,
                trust_plugins,
                slurm,
            ),
            plugins=tuple(map(str, plugins or ())),
            network=network,
            network_settings=tuple(network_settings or ()),
            trust=tuple(trust or ()),
            only=tuple(only or ()),
        )
        raise typer.Exit(code)


@app.command()
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
            from engram.app.cli.results import Chosen, show
            from engram.app.cli.results import verify as verify_store

        if verify:
            chosen = {"benchmark": benchmark, "method": method, "split": split, "device": device}
            others = {**chosen, "merge": merge, "json": json or None, "csv": csv or None}
            raise typer.Exit(verify_store(store, export=export, others=others))
        show(
            store,
            chosen=Chosen(benchmark, method, split, device),
            as_json=json,
            as_csv=csv,
            export=export,
            merge=merge,
        )


@app.command()
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
            from engram.app.cli.report import write_page

        write_page(store, out=out)


@app.command("list")
def list_(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND]...",
            help="These alone: rules, policies, methods, benchmarks, networks.",
        ),
    ] = None,
    plugins: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """List rules, policies, methods, benchmarks and networks, ours and those of plugins.

    The list says where each comes from; a rule of a plugin's is a method too.
    """
    with one_sentence():
        with importing():
            from engram.app.cli.listing import list_kinds
        use_plugins(plugins)
        list_kinds(kinds or [], as_json=json)


@data_app.callback(invoke_without_command=True)
def _listing(context: typer.Context, data: DataOption = None, json: JsonOption = False) -> None:
    """List the data sets, or fetch one.

    The list says what is here, its size and licence, and where the rest comes from.
    """
    if context.invoked_subcommand is not None:
        context.obj = data
        with one_sentence():
            if json:
                raise EngramError("--json is for the list of data sets: `engram data --json`.")
        return
    with one_sentence():
        use_data(data)
        with importing():
            from engram.app.cli.data import list_sources

        list_sources(folder=data, as_json=json)


@data_app.command()
def fetch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="One that `engram data` lists, e.g. cifar-100.")],
    data: DataOption = None,
) -> None:
    """Download a data set, check it and unpack it, unless it is here."""
    with one_sentence():
        with importing():
            from engram.app.cli.data import fetch as fetch_source

        fetch_source(name, folder=data or context.obj)


@app.command()
def bench(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="Measure these alone: stacks, searches, captured, replays, images, determinism, "
            "compiled (GPU); steps, methods (CPU); networks, loop, penalties (both).",
        ),
    ] = None,
    device: DeviceOption = "auto",
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Keep the numbers in a file.")
    ] = None,
) -> None:
    """Measure what training steps cost on this machine."""
    with one_sentence():
        with importing():
            from engram.app.cli.bench import bench as measure

        measure(tables or [], device=device, json_path=json)


app.add_typer(data_app, name="data")
