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
        code: str | int | None = 0
        try:
            app(prog_name="engram")
        except SystemExit as ended:
            code = ended.code
        except OSError as error:  # of the streams: of any other one a command makes a sentence
            code = _lost(error)
        for stream in streams:
            try:
                stream.flush()
            except OSError as error:
                with Path(os.devnull).open("w") as nowhere:  # or Python tries again, and complains
                    os.dup2(nowhere.fileno(), stream.fileno())
                if stream is streams[0]:
                    code = code or _lost(error)
        sys.exit(code)


def _lost(error: OSError) -> int:
    """Return the exit code for what stdout did not take, and say so; a reader may have enough."""
    if isinstance(error, BrokenPipeError):
        return 1
    print(f"engram: Not all could be printed: {error.strerror}.", file=sys.stderr)
    return 2


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
