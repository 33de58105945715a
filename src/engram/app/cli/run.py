"""``engram run``. Whatever is slow to import is imported inside."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from engram.app import runs
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
    recording,
    use_data,
    use_plugins,
)
from engram.app.cli.process import importing, on_stop, one_sentence
from engram.app.terminal import one_line


def run(
    benchmark: Annotated[
        str,
        typer.Argument(
            help="permuted-mnist, split-cifar, split-cub or split-awa; a preset, such as "
            "permuted-mnist-600 or many-permutations-30; folder:PATH or table:PATH."
        ),
    ],
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="One or more, e.g. van mega-ii; an unknown name is answered with all names.",
        ),
    ],
    seeds: Annotated[int, typer.Option(help="How many runs of each method, seeds 0, 1, ...")] = 5,
    tasks: Annotated[
        int | None, typer.Option(help="How many tasks; the benchmark's unless given.")
    ] = None,
    examples: ExamplesOption = None,
    passes: Annotated[
        int, typer.Option(help="Passes over each task's examples; more than 1 on your own data.")
    ] = 1,
    settings: SetOption = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Use what `engram tune` chose; --set wins over it.")
    ] = False,
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
    record: Annotated[
        str | None,
        typer.Option(
            metavar="steps", help="Keep every step's losses, weights and angles, beside the store."
        ),
    ] = None,
    record_every: Annotated[
        int, typer.Option(help="With --record: keep one of so many steps.")
    ] = 1,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write scalars for TensorBoard there too.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Compute what the store has already once more.")
    ] = False,
    json: JsonOption = False,
    help_settings: Annotated[
        bool, typer.Option("--help-settings", help="List the settings with their values; no run.")
    ] = False,
) -> None:
    """Train methods on a benchmark; store, print and plot results.

    Results are stored as they are finished, and what the store has is not computed again.
    """
    with one_sentence():
        use_data(data)
        with importing():
            from engram.app import report
            from engram.app.cli.console import count
            from engram.app.cli.progress import training
            from engram.app.cli.requests import Request, list_settings, specify
            from engram.lab import protocol
        use_plugins(plugins)

        request = Request(
            benchmark,
            tuple(methods),
            seeds,
            tasks,
            examples,
            tuple(settings or ()),
            device,
            store if tuned else None,
            recording(record, record_every),
            deterministic,
            tuple(map(str, plugins or ())),
            passes,
            network,
            tuple(network_settings or ()),
        )
        if help_settings:
            list_settings(request, as_json=json)
            return
        runs.check_seeds(seeds)
        runs.check_interval(checkpoint_every)
        cluster = cluster_of(
            executor, workers, gpus_per_worker, shared, ship_data, trust_plugins, slurm
        )
        if tensorboard is not None:
            report.check_log_folder(tensorboard)
            with importing():
                report.check_tensorboard()
        specs = specify(request)
        place = cluster.device(device)
        runs.check_disk(store, specs[0].tasks, seeds * len(specs))
        # Data that is missing is found out before there is a store.
        addresses = [
            runs.address(identity, seed)
            for identity in [spec.identity() for spec in specs]
            for seed in range(seeds)
        ]
        for spec in specs:
            protocol.check_network(spec)
        with runs.Store(store) as opened:
            units = runs.plan_units(
                specs,
                range(seeds),
                opened,
                device=place,
                again=again,
                record_every=request.record_every,
                deterministic=deterministic,
                workers=cluster.workers or 1,
            )
            if not units:
                print("All of it is in the store already.", file=sys.stderr)
            with training(units, checkpoint_every, cluster) as listener:
                failures = runs.execute(
                    units,
                    opened,
                    protocol.run,
                    device=place,
                    command=request.command,
                    listener=listener,
                    checkpoint_every=checkpoint_every,
                    cluster=cluster,
                )
            rows = [row for each in addresses if (row := opened.newest(each)) is not None]
        stored = "Stopped: what is finished is stored, and the same command shows and plots it."
        with on_stop(stored):
            _show(rows, specs[0].benchmark, store.parent, as_json=json)
            if tensorboard is not None:
                written = report.write_scalars(rows, tensorboard)
                line = f"TensorBoard: {count(written, 'run')} new in {one_line(tensorboard)}"
                print(line, file=sys.stderr)
        raise typer.Exit(1 if failures else 0)


def _show(rows: Sequence[runs.Row], benchmark: str, folder: Path, *, as_json: bool) -> None:
    """Print the results of a run, and plot them in a folder."""
    from engram.app import report
    from engram.app.cli.console import print_json, stdout_console
    from engram.lab import protocol

    summaries = report.summarise(rows)
    defaults = report.PaperDefaults(protocol.specify)
    if as_json:
        entries = [report.as_json(summary) for summary in summaries]
        print_json({"benchmark": benchmark, "results": entries})
    elif summaries:
        stdout_console().print(report.results_table(summaries, defaults))
        for sentence in report.remarks(summaries):
            print(sentence)
    for summary in summaries:
        if message := report.failure_message(summary):
            print(f"{defaults.label(summary)}: {message}.", file=sys.stderr)
    plot = report.save_plot(summaries, defaults, folder)
    if plot is not None:
        print(f"Plot: {one_line(plot)}", file=sys.stderr if as_json else sys.stdout)
