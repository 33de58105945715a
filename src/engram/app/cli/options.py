"""The options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from engram.app.runs import DEFAULT_STORE as DEFAULT_STORE
from engram.app.runs import LOCAL, Cluster
from engram.errors import EngramError

StoreOption = Annotated[Path, typer.Option(help="The file that holds the results.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
DeviceOption = Annotated[
    str, typer.Option(help="auto (a GPU if there is one), cpu, cuda or cuda:N.")
]
ExamplesOption = Annotated[
    int | None,
    typer.Option(help="Training examples in each task; all, or the preset's, unless given."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting, as often as you like; see run --help-settings.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The folder that holds the data; else $ENGRAM_DATA, else the cache."
    ),
]
CheckpointOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="How often runs are saved, to be resumed if stopped; 0: never."
    ),
]
DeterministicOption = Annotated[
    bool,
    typer.Option("--deterministic", help="Let a GPU end with the same bits each time; slower."),
]
PluginOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file with a rule, policy, method, benchmark or network of your own; as "
        "often as you like.",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="FILE.py:NAME",
        help="A network in the place of the benchmark's: a class or function (shape, outputs) of a "
        "Python file, which is executed; or a registered name, such as mlp.",
    ),
]
NetworkSetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--network-set",
        metavar="KEY=VALUE",
        help="An argument that the network is made with, as often as you like.",
    ),
]
CHECKPOINT_EVERY = 60.0
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE", help="Where runs train: local, ray[:ADDRESS] or slurm[:PARTITION]."
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="N", help="Workers on the cluster; on Ray, all it has.")
]
GpusOption = Annotated[
    float | None,
    typer.Option(metavar="G", help="GPUs of each worker: 0, 1 or, on Ray, a share of one."),
]
SharedOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A folder that all machines see: checkpoints, Slurm's jobs."),
]
ShipOption = Annotated[
    bool,
    typer.Option("--ship-data", help="Send data of any size to the workers, not small ones alone."),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-plugins", help="Send plugin files and networks of your own to workers, to run."
    ),
]
SlurmOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm", metavar="KEY=VALUE", help="An option of Slurm's jobs, e.g. account=physics."
    ),
]


def cluster_of(
    executor: str | None,
    workers: int | None,
    gpus_per_worker: float | None,
    shared: Path | None,
    ship_data: bool,
    trust_plugins: bool,
    slurm: Sequence[str] | None,
    usual: Cluster = LOCAL,
) -> Cluster:
    """Return the cluster that the options name, those that are not given being the usual one's."""
    jobs = parse_settings(slurm or (), "--slurm")
    given: dict[str, Any] = {
        "executor": executor,
        "workers": workers,
        "gpus_per_worker": gpus_per_worker,
        "shared": None if shared is None else shared.expanduser().absolute(),
        "ship_data": ship_data or None,
        "trust_plugins": trust_plugins or None,
        "slurm": {key: int(value) if value.isdecimal() else value for key, value in jobs.items()}
        or None,
    }
    if executor == "local":  # which takes no other options, be they a study's
        usual = LOCAL
    made = replace(usual, **{name: value for name, value in given.items() if value is not None})
    made.check()
    return made.sized()


def parse_settings(texts: Sequence[str], option: str = "--set") -> dict[str, str]:
    """Return what an option, ``--set`` unless given, was given by key."""
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise EngramError(f"{option} takes KEY=VALUE, not {text!r}.")
        if key in settings:
            raise EngramError(f"{option} gives {key!r} twice.")
        settings[key] = value
    return settings


def use_data(folder: Path | None) -> None:
    """Let this process and its workers find data in a folder, if one is given."""
    if folder is None:
        return
    try:
        found = folder.expanduser().is_dir()
    except (OSError, RuntimeError):  # a name that is too long; nobody's home
        found = False
    if not found:
        raise EngramError(f"data must be a folder that exists, not {str(folder)!r}.")
    os.environ["ENGRAM_DATA"] = str(folder)


def use_plugins(files: Sequence[Path] | None) -> None:
    """Let this process and its workers find what is in plugin files, if any are given."""
    from engram import plugins

    plugins.use_files(files or ())


def recording(what: str | None, every: int) -> int:
    """Return how many steps there are to one that is recorded, or 0 if none is to be."""
    if not 1 <= every < 2**31:
        raise EngramError(f"record-every must be from 1 to 2^31 - 1, not {every}.")
    if what not in (None, "steps"):
        raise EngramError(f"record must be steps, not {what!r}.")
    return 0 if what is None else every
