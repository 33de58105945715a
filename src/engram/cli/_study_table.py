"""What a study would run, on what and for how long, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from engram import runs
from engram.cli._choices import count
from engram.cli._console import stdout_console
from engram.studies import Planned, Study, Timings, published, taken
from engram.terminal import one_line

_COLUMNS = ("benchmark", "tasks", "examples", "method", "runs", "to do", "each", "in all")
_TEXTS = ("benchmark", "method")
_BORROWED = "*"  # marks a time that is another machine's


class _Clock:
    """How long runs take here or, where the store has nothing like them, where we ran them."""

    def __init__(self, rows: Sequence[runs.Row], name: str) -> None:
        known = published()
        self.other = (
            name
            if name == "cpu"
            else next((each.device for each in known if each.device != "cpu"), name)
        )
        self._here = Timings(taken(rows), name)
        self._there = Timings(known, self.other)

    def seconds(self, each: Planned) -> tuple[float | None, str]:
        """Return about how long one run takes, and the mark of a time that is borrowed."""
        if not each.missing:
            return None, ""
        seconds = self._here.seconds(each.spec)
        return (seconds, "") if seconds is not None else (self._there.seconds(each.spec), _BORROWED)


def show_plan(
    study: Study, planned: Sequence[Planned], rows: Sequence[runs.Row], device: str
) -> None:
    """Print a line for each method in each setting, and what it comes to."""
    name, side_by_side = _device_name(device), runs.crew_size(device)
    clock = _Clock(rows, name)
    title = one_line(study.title)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _TEXTS else "right", no_wrap=True)
    known, unknown, borrowed = 0.0, 0, False
    for each in planned:
        seconds, mark = clock.seconds(each)
        if seconds is None:
            unknown += each.missing
        else:
            known += seconds * each.missing
            borrowed = borrowed or bool(mark)
        table.add_row(*map(Text, _line(each, seconds, mark)))
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
    if borrowed:
        where = "a core of ours" if clock.other == "cpu" else f"an {clock.other}"
        console.print(
            Text(f"{_BORROWED} Nothing like it is in the store; so long it took on {where}.")
        )
    for sentence in absent:
        console.print(Text(f"Cannot be run: {sentence}"))


def _line(each: Planned, seconds: float | None, mark: str) -> list[str]:
    spec = each.spec
    if each.absent:
        last = ["no data", "", ""]
    elif not each.missing:
        last = ["0", "", ""]
    else:
        times = (
            ["unknown"] * 2
            if seconds is None
            else [f"{_time(time)}{mark}" for time in (seconds, seconds * each.missing)]
        )
        last = [str(each.missing), *times]
    numbers = [str(spec.tasks), f"{spec.examples:,}"]
    return [spec.benchmark, *numbers, spec.method, str(each.seeds), *last]


def _duration(seconds: float, missing: int, unknown: int) -> str:
    if unknown == missing:
        return "how long is unknown, as nothing like it was ever made"
    rest = f", and an unknown time for {count(unknown, 'run')}" if unknown else ""
    return f"about {_time(seconds)}{rest}"


def _time(seconds: float) -> str:
    """Return a time as one says it.

    >>> _time(42.4), _time(600.0), _time(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _device_name(device: str) -> str:
    """Return a device's name as results have it."""
    if device == "cpu":
        return device
    import torch

    return torch.cuda.get_device_name(device)
