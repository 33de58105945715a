"""What a study would run, on what and for how long, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from engram import runs
from engram.cli._choices import count
from engram.cli._console import stdout_console
from engram.studies import Planned, Study, Timings

_COLUMNS = ("benchmark", "tasks", "examples", "method", "runs", "to do", "each", "in all")
_TEXTS = ("benchmark", "method")


def show_plan(
    study: Study, planned: Sequence[Planned], rows: Sequence[runs.Row], device: str
) -> None:
    """Print a line for each method in each setting, and what it comes to."""
    name, side_by_side = _device_name(device), runs.crew_size(device)
    timings = Timings(rows, name)
    table = Table(title=study.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _TEXTS else "right", no_wrap=True)
    known, unknown = 0.0, 0
    for each in planned:
        seconds = timings.seconds(each.spec) if each.missing else None
        if seconds is None:
            unknown += each.missing
        else:
            known += seconds * each.missing
        table.add_row(*map(Text, _line(each, seconds)))
    console = stdout_console()
    console.print(table)
    missing, wanted = sum(each.missing for each in planned), sum(each.seeds for each in planned)
    beside = f", {side_by_side} side by side" if side_by_side > 1 else ""
    told = f"{missing:,} of {count(wanted, 'run')} to do on {name}{beside}"
    absent = dict.fromkeys(each.absent for each in planned if each.absent)
    if missing:
        told += f": {_duration(known / side_by_side, missing, unknown)}"
    elif not absent:
        told += ": all of it is in the store"
    console.print(Text(f"{told}."))
    for sentence in absent:
        console.print(Text(f"Cannot be run: {sentence}"))


def _line(each: Planned, seconds: float | None) -> list[str]:
    spec = each.spec
    if each.absent:
        last = ["no data", "", ""]
    elif not each.missing:
        last = ["0", "", ""]
    else:
        times = ("unknown", "unknown") if seconds is None else (seconds, seconds * each.missing)
        last = [str(each.missing), *(_time(time) for time in times)]
    numbers = [str(spec.tasks), f"{spec.examples:,}"]
    return [spec.benchmark, *numbers, spec.method, str(each.seeds), *last]


def _duration(seconds: float, missing: int, unknown: int) -> str:
    if unknown == missing:
        return "how long is unknown, as nothing like it is in the store"
    rest = f", and an unknown time for {count(unknown, 'run')}" if unknown else ""
    return f"about {_time(seconds)}{rest}"


def _time(seconds: float | str) -> str:
    """Return a time as one says it.

    >>> _time(42.4), _time(600.0), _time(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if isinstance(seconds, str):
        return seconds
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _device_name(device: str) -> str:
    """Return a device's name as results have it."""
    if device == "cpu":
        return device
    import torch

    return torch.cuda.get_device_name(device)
