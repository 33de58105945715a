"""``engram data``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from engram.app.cli.console import print_json, stderr_bars, stdout_console
from engram.app.terminal import one_line
from engram.lab import data


def list_sources(*, folder: Path | None = None, as_json: bool = False) -> None:
    """Print what can be had: where it is, its size and licence, where it would come from."""
    found = data.sources(folder)
    if as_json:
        print_json({"sources": [_entry(source) for source in found]})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("here", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("licence")
    table.add_column("from", overflow="fold")
    for source in found:
        here = "not here" if source.present is None else one_line(source.present)
        table.add_row(source.name, here, _size(source.bytes), source.licence, source.urls[0])
    stdout_console().print(table)


def fetch(name: str, *, folder: Path | None = None) -> None:
    """Download one of them unless it is here, and print where it lies."""
    with _bar(name) as progress:
        place = data.fetch(name, folder, progress=progress)
    print(one_line(place))


def _entry(source: data.Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "title": source.title,
        "present": None if source.present is None else str(source.present),
        "bytes": source.bytes,
        "licence": source.licence,
        "urls": list(source.urls),
        "checksum": source.checksum,
    }


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


@contextmanager
def _bar(name: str) -> Iterator[data.Progress | None]:
    """Yield what moves a bar on stderr, or None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with stderr_bars(*columns) as display:
        task = display.add_task(name, total=None)
        yield lambda here, total: display.update(task, completed=here, total=total)
