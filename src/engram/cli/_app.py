"""The commands. Whatever is slow to import is imported inside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TextIO

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
from engram.terminal import guarded_streams

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
    """Run the command line; all that it prints passes `engram.terminal`."""
    with guarded_streams() as streams:
        try:
            app(prog_name="engram")
        except SystemExit as ended:
            code = _deliver(streams)
            sys.exit(ended.code or code)


def _deliver(streams: Iterable[TextIO]) -> int:
    """Write what was printed; return the exit code, that of an error where it cannot be written.

    Whoever reads our output may have had enough; a disk may take no more.
    """
    code = 0
    for stream in streams:
        try:
            stream.flush()
        except OSError as error:
            with Path(os.devnull).open("w") as nowhere:  # or it is tried again, with a traceback
                os.dup2(nowhere.fileno(), stream.fileno())
            if isinstance(error, BrokenPipeError):
                code = 1
            else:
                code = 2
                print(f"engram: Not all could be printed: {error.strerror}.", file=sys.stderr)
    return code


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
