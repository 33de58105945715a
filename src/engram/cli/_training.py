"""``engram run`` and ``engram tune``. Whatever is slow to import is imported inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli._options import (
    CHECKPOINT_EVERY,
    DEFAULT_STORE,
    CheckpointOption,
    DataOption,
    DeterministicOption,
    DeviceOption,
    ExamplesOption,
    JsonOption,
    SetOption,
    StoreOption,
    importing,
    one_sentence,
    recording,
    use_data,
)


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
    settings: SetOption = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Use what `engram tune` chose; --set wins over it.")
    ] = False,
    device: DeviceOption = "auto",
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    deterministic: DeterministicOption = False,
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
            import engram.protocol
            from engram.cli._request import Request, list_settings
            from engram.cli._run import train

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
        )
        if help_settings:
            list_settings(request, engram.protocol, as_json=json)
            return
        code = train(
            request,
            engram.protocol,
            store=store,
            again=again,
            as_json=json,
            tensorboard=tensorboard,
            checkpoint_every=checkpoint_every,
        )
        raise typer.Exit(code)


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
    store: StoreOption = DEFAULT_STORE,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    deterministic: DeterministicOption = False,
    json: JsonOption = False,
) -> None:
    """Choose a method's settings on tasks that no run trains on.

    Every point of the method's grid is tried. The trials are stored, and so is the choice, the best
    average accuracy; `engram run --tuned` uses it.
    """
    with one_sentence():
        use_data(data)
        with importing():
            import engram.protocol
            from engram.cli import _tune
            from engram.cli._request import TuningRequest

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
        )
        code = _tune.tune(
            request,
            engram.protocol,
            store=store,
            as_json=json,
            checkpoint_every=checkpoint_every,
        )
        raise typer.Exit(code)
