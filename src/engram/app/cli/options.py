"""The options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from engram.app.runs import DEFAULT_STORE as DEFAULT_STORE
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
CHECKPOINT_EVERY = 60.0


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
