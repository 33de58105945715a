"""``engram bench``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from engram.app import report, runs
from engram.app.cli.console import stdout_console
from engram.errors import EngramError
from engram.files import whole_file
from engram.lab import bench as benchmarks

Rows = Sequence[Mapping[str, Any]]


def bench(
    names: Sequence[str] = (),
    *,
    device: str = "auto",
    json_path: Path | None = None,
) -> None:
    """Measure what steps cost on a device; print the tables, and write them to a file if asked.

    The file is written anew after each table or part of one, so that nothing measured is lost to
    what follows.
    """
    if json_path is not None and json_path.is_dir():
        raise EngramError(f"json must be the name of a file, not the folder {str(json_path)!r}.")
    if names and json_path is not None and json_path.exists():
        raise EngramError(
            f"{str(json_path)!r} exists already, and may hold tables that are not measured now: "
            "name another file."
        )
    if json_path is not None:
        _check_place(json_path)
    chosen = runs.resolve_device(device)
    words = ["engram", "bench", *names, *([] if device == "auto" else ["--device", device])]
    tables = dict[str, Rows]()
    for name, rows in benchmarks.measure(chosen, names):
        stdout_console().print(report.speed_table(name, rows))
        tables[name] = [*tables.get(name, ()), *rows]
        if json_path is not None:
            report.save_performance(
                json_path,
                tables,
                device=benchmarks.device_name(chosen),
                command=shlex.join(words),
                versions=benchmarks.others(chain.from_iterable(tables.values())),
            )


class _Enough(Exception):  # noqa: N818 (nothing is wrong)
    """A file has been begun, and is not wanted yet."""


def _check_place(path: Path) -> None:
    """Refuse a file that cannot be written; nothing of it stays."""
    with suppress(_Enough), whole_file(path):
        raise _Enough
