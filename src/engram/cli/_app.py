"""The commands and their options. Whatever is slow to import is imported inside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from engram import __version__
from engram.errors import EngramError

DEFAULT_STORE = Path("engram-results/store.sqlite")

app = typer.Typer(
    help="Lifelong learning with an episodic memory: run the paper's experiments.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

StoreOption = Annotated[Path, typer.Option(help="The file that holds the results.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):  # a path or an old terminal may not take every letter
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="engram")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"engram {__version__}")
        raise typer.Exit


@app.callback()
def _engram(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    benchmark: Annotated[str, typer.Argument(help="Where to run, e.g. permuted-mnist.")],
    methods: Annotated[list[str], typer.Argument(metavar="METHOD...", help="e.g. van mega-ii.")],
    seeds: Annotated[int, typer.Option(help="How many runs of each method, seeds 0, 1, ...")] = 5,
    tasks: Annotated[int | None, typer.Option(help="Tasks; the paper's unless given.")] = None,
    examples: Annotated[
        int | None, typer.Option(help="Training examples in each task; all unless given.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting; see --help-settings."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    store: StoreOption = DEFAULT_STORE,
    again: Annotated[
        bool, typer.Option("--again", help="Compute what the store has already once more.")
    ] = False,
    json: JsonOption = False,
    help_settings: Annotated[
        bool, typer.Option("--help-settings", help="List the settings with their values; no run.")
    ] = False,
) -> None:
    """Train methods on a benchmark and store, print and plot what comes of it.

    Results are stored as they are finished, and what the store has is not computed again.
    """
    with _one_sentence():
        import engram.protocol
        from engram.cli._request import Request, list_settings
        from engram.cli._run import train

        request = Request(
            benchmark, tuple(methods), seeds, tasks, examples, tuple(settings or ()), device
        )
        if help_settings:
            list_settings(request, engram.protocol, as_json=json)
            return
        code = train(request, engram.protocol, store=store, again=again, as_json=json)
        raise typer.Exit(code)


@app.command()
def tune(
    benchmark: Annotated[str, typer.Argument(help="Where to tune, e.g. permuted-mnist.")],
    method: Annotated[str, typer.Argument(help="e.g. mega-i.")],
    seeds: Annotated[int, typer.Option(help="How many runs of each trial, seeds 0, 1, ...")] = 3,
    tasks: Annotated[int | None, typer.Option(help="Tuning tasks; three unless given.")] = None,
    examples: Annotated[
        int | None, typer.Option(help="Training examples in each task; all unless given.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Try a method's grid of settings on the tuning tasks, which are no training tasks.

    Every trial is stored; the one with the best average accuracy is named.
    """
    with _one_sentence():
        import engram.protocol
        from engram.cli._tune import search

        specs = engram.protocol.tuning_specs(benchmark, method, tasks=tasks, examples=examples)
        code = search(specs, seeds, device=device, store=store, as_json=json)
        raise typer.Exit(code)


@app.command()
def results(
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every result as JSON-lines.")
    ] = None,
    merge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take in the results of JSON-lines.")
    ] = None,
) -> None:
    """Show the results in a store, take in others, or write them to a file."""
    with _one_sentence():
        import engram.protocol
        from engram.cli import _results

        _results.show(store, engram.protocol, as_json=json, export=export, merge=merge)


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Turn a user's mistake into one sentence and exit code 2, and Ctrl-C into 130."""
    try:
        yield
    except EngramError as error:
        typer.echo(f"engram: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
