"""The commands. Whatever is slow to import is imported inside them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from engram import __version__
from engram.cli import _findings, _training
from engram.cli._options import (
    DataOption,
    DeviceOption,
    JsonOption,
    importing,
    one_sentence,
    use_data,
)
from engram.errors import EngramError

app = typer.Typer(
    help="Lifelong learning with an episodic memory: run the paper's experiments.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(rich_markup_mode=None)

app.command()(_training.run)
app.command()(_training.tune)
app.command()(_findings.reproduce)
app.command()(_findings.results)
app.command()(_findings.report)


def main() -> None:
    """Run the command line."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):  # a path or an old terminal may not take every letter
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="engram")


def _open_streams() -> None:
    """Give a process that was started without one of its three streams one that leads nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # in this order they take the numbers 0, 1 and 2
            stream = Path(os.devnull).open(mode)  # noqa: SIM115 (as long as the process lives)
            os.set_inheritable(stream.fileno(), True)  # or else it is closed in the workers
            setattr(sys, name, stream)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"engram {__version__}")
        raise typer.Exit


@app.callback()
def _engram(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


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
            from engram.cli import _data

        _data.listing(folder=data, as_json=json)


@data_app.command()
def fetch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="One that `engram data` lists, e.g. cifar-100.")],
    data: DataOption = None,
) -> None:
    """Download a data set, check it and unpack it, unless it is here."""
    with one_sentence():
        with importing():
            from engram.cli import _data

        _data.fetch(name, folder=data or context.obj)


@app.command()
def bench(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="Measure these alone: stacks, searches, captured, replays, images, determinism "
            "(GPU); steps, methods (CPU).",
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
            import engram.bench  # noqa: F401 (and torch with it)
            from engram.cli import _bench

        _bench.bench(tables or [], device=device, json_path=json)


app.add_typer(data_app, name="data")
