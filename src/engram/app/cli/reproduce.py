"""``engram reproduce``: what the store lacks of a study is run, or listed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from rich import box
from rich.table import Table
from rich.text import Text

from engram.app import runs, studies
from engram.app.cli.console import count, stdout_console
from engram.app.cli.options import CHECKPOINT_EVERY
from engram.app.cli.process import on_stop
from engram.app.cli.progress import training
from engram.app.cli.report import write_page
from engram.app.cli.requests import network_given, network_words
from engram.app.studies import Planned, Study, Timings, keep_choices, plan, read_study, taken
from engram.app.terminal import one_line
from engram.errors import EngramError
from engram.lab import protocol

_MOST_RUNS = 100_000  # of a study: they are listed one by one
_COLUMNS = ("benchmark", "tasks", "examples", "method", "runs", "to do", "each", "in all")
_TEXTS = ("benchmark", "method")
_ELSEWHERE = "*"  # marks a time that is another machine's


def reproduce(
    target: str,
    *,
    store: Path,
    device: str = "auto",
    seeds: int | None = None,
    dry_run: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
    cluster: Callable[[runs.Cluster], runs.Cluster] = lambda studys: studys,
    plugins: Sequence[str] = (),
    network: str | None = None,
    network_settings: Sequence[str] = (),
    trust: Sequence[Path] = (),
    only: Sequence[str] = (),
) -> int:
    """Run what the store has not of a study, then write the report; return the exit code.

    What has no data is named and left out. With ``dry_run`` nothing is run: it is listed. What the
    study says of a cluster, ``cluster`` may change. A ``network`` is for the runs that the study
    names none for; a file that it names one of is executed only if it is among those to ``trust``.
    Where the study searches settings, it is run entry by entry, each one's search before its runs;
    on a GPU, whose runs are short beside the start of a worker, benchmark by benchmark.
    """
    if seeds is not None:
        runs.check_seeds(seeds)
    runs.check_interval(checkpoint_every)
    whole = read_study(target, trust).with_network(network_given(network, network_settings))
    study = whole.only(only)
    where = cluster(study.cluster)
    place = where.device(device)
    _check_size(study, seeds)
    with _looked_at(store) as held:
        planned = plan(study, held, device=place, seeds=seeds, workers=where.workers or 1)
        if dry_run:
            _show_plan(study, planned, held.rows(), place, where)
            return 0
    _check_disk(store, planned)
    absent = _announce(planned, study.title, where)
    if len(absent) == len(planned):
        return 1
    for spec in {each.spec.network: each.spec for each in planned if each.units}.values():
        protocol.check_network(spec)
    more = [word for file in plugins for word in ("--plugin", file)]
    more += network_words(network, network_settings)
    more += [word for file in trust for word in ("--trust", str(file))]
    more += [word for part in only for word in ("--only", part)]
    command = _command(target, seeds, device, more)
    failed = False
    with runs.Store(store) as opened:
        for part in _in_turn(study, place):
            keep_choices(part, opened, command)  # of a command that was stopped
            while units := _units(part, opened, place, seeds, where):
                with training(units, checkpoint_every, where) as listener:
                    failures = runs.execute(
                        units,
                        opened,
                        protocol.run,
                        device=place,
                        command=command,
                        listener=listener,
                        checkpoint_every=checkpoint_every,
                        cluster=where,
                    )
                failed = failed or bool(failures)
                keep_choices(part, opened, command)
                if failures or not any(entry.search for entry in part.runs):
                    break
    with on_stop("Stopped: what is finished is stored, and the same command writes the report."):
        write_page(store)
        if whole.table:
            with runs.Store(store, read_only=True) as opened:
                files = studies.write_table(whole, opened, store.parent)
            print(f"Table: {', '.join(one_line(file) for file in files)}")
    return 1 if failed or absent else 0


def _in_turn(study: Study, device: str) -> list[Study]:
    """Return the parts of a study that are run one after the other: all, if nothing is searched."""
    if not any(entry.search for entry in study.runs):
        return [study]
    if device == "cpu":
        return [replace(study, runs=(entry,)) for entry in study.runs]
    alike = groupby(study.runs, key=lambda entry: entry.benchmark)
    return [replace(study, runs=tuple(entries)) for _, entries in alike]


def _units(
    study: Study, store: runs.Store, device: str, seeds: int | None, cluster: runs.Cluster
) -> list[runs.Unit]:
    planned = plan(study, store, device=device, seeds=seeds, workers=cluster.workers or 1)
    return [unit for each in planned for unit in each.units]


def _check_size(study: Study, seeds: int | None) -> None:
    """Refuse more runs than can be listed: seeds may be any number."""
    wanted = sum(
        len(each.specs)
        * ((seeds or each.seeds) + len(each.without) * (seeds or each.without_seeds))
        for each in study.runs
    )
    if wanted > _MOST_RUNS:
        raise EngramError(
            f"A study may have at most {_MOST_RUNS:,} runs, and this one has {wanted:,}: lower its "
            "seeds."
        )


def _check_disk(store: Path, planned: Sequence[Planned]) -> None:
    """Refuse if the results of what is missing will not fit beside the store."""
    left = [each for each in planned if each.units]
    if left:
        runs.check_disk(store, max(each.spec.tasks for each in left), _missing(left))


@contextmanager
def _looked_at(path: Path) -> Iterator[runs.Store]:
    """Open a store without making or changing it; one that is not there is empty."""
    if path.exists():
        with runs.Store(path, read_only=True) as opened:
            yield opened
        return
    with TemporaryDirectory() as folder, runs.Store(Path(folder) / path.name) as empty:
        yield empty


def _announce(planned: Sequence[Planned], title: str, cluster: runs.Cluster) -> list[Planned]:
    """Say what is to be done, where, and what cannot be, and return the latter."""
    wanted = sum(each.wanted for each in planned)
    to_do = f"{_missing(planned):,} of {count(wanted, 'run')} to do{_on(cluster)}."
    print(f"{one_line(title)}: {to_do}", file=sys.stderr)
    absent = [each for each in planned if each.absent]
    for sentence in dict.fromkeys(f"{each.spec.benchmark}: {each.absent}" for each in absent):
        print(f"Left out, {sentence}", file=sys.stderr)
    return absent


def _on(cluster: runs.Cluster) -> str:
    """Return which cluster it is, for the end of a sentence; nothing if it is this machine."""
    if cluster.is_local:
        return ""
    return f", on {one_line(cluster.executor)} with {count(cluster.workers or 1, 'worker')}"


def _missing(planned: Sequence[Planned]) -> int:
    return sum(each.missing for each in planned)


def _command(target: str, seeds: int | None, device: str, more: Sequence[str]) -> str:
    count = [] if seeds is None else ["--seeds", str(seeds)]
    return shlex.join(["engram", "reproduce", target, *count, *more, "--device", device])


class _Durations:
    """How long runs take: by this store or, where it has none like them, by published results."""

    def __init__(self, rows: Sequence[runs.Row], name: str) -> None:
        known = studies.published()
        self.other = (
            name
            if name == "cpu"
            else next((each.device for each in known if each.device != "cpu"), name)
        )
        self._here = Timings(taken(rows), name)
        self._there = Timings(known, self.other)

    def seconds(self, each: Planned) -> tuple[float | None, str]:
        """Return about how long one run takes, and the mark of a time that is another machine's."""
        if not each.missing:
            return None, ""
        seconds = self._here.seconds(each.spec)
        return (
            (seconds, "") if seconds is not None else (self._there.seconds(each.spec), _ELSEWHERE)
        )


def _show_plan(
    study: Study,
    planned: Sequence[Planned],
    rows: Sequence[runs.Row],
    device: str,
    cluster: runs.Cluster,
) -> None:
    """Print a line for each method in each setting, and what it comes to."""
    name = _device_name(device) if cluster.is_local else _workers_device(device, rows)
    side_by_side = runs.pool_size(device) if cluster.is_local else cluster.workers or 1
    durations = _Durations(rows, name)
    title = one_line(study.title)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _TEXTS else "right", no_wrap=True)
    known, longest, unknown, elsewhere = 0.0, 0.0, 0, False
    for each in planned:
        seconds, mark = durations.seconds(each)
        if seconds is None:
            unknown += each.missing
        else:
            known += seconds * each.missing
            longest = max(longest, seconds if each.missing else 0.0)
            elsewhere = elsewhere or bool(mark)
        table.add_row(*map(Text, _line(each, seconds, mark)))
    console = stdout_console()
    console.print(table)
    missing, wanted = sum(each.missing for each in planned), sum(each.wanted for each in planned)
    beside = f", {side_by_side:,} side by side" if side_by_side > 1 else ""
    beside = _on(cluster) or beside
    summary = f"{missing:,} of {count(wanted, 'run')} to do on {name}{beside}"
    absent = dict.fromkeys(each.absent for each in planned if each.absent)
    if missing:
        summary += f": {_duration(_spread(known, longest, side_by_side), missing, unknown)}"
    elif not absent:
        summary += ": all of it is in the store"
    console.print(Text(f"{summary}."))
    if elsewhere:
        where = "one CPU core" if durations.other == "cpu" else f"an {durations.other}"
        sentence = "The store has no run like it; this is the time of a published one"
        console.print(Text(f"{_ELSEWHERE} {sentence}, on {where}."))
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
    searched = f"{len(each.trials)} settings on tuning tasks" if each.trials else ""
    network = "" if spec.network is None else spec.network.short_name
    method = " ".join(filter(None, [spec.method, network, each.label, searched]))
    return [spec.benchmark, *numbers, method, str(each.wanted), *last]


def _spread(seconds: float, longest: float, workers: int) -> float:
    """Return how long work takes that workers share: no run is cut, so none takes less than one.

    >>> _spread(100.0, 10.0, 4), _spread(100.0, 60.0, 4)
    (25.0, 60.0)
    """
    return max(seconds / workers, longest)


def _duration(seconds: float, missing: int, unknown: int) -> str:
    if unknown == missing:
        return "how long is unknown, as no run like it has been timed"
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


def _workers_device(device: str, rows: Sequence[runs.Row]) -> str:
    """Return what workers' GPUs are called: as in the store, or else as in published results."""
    if device == "cpu":
        return device
    known = [row.device for row in reversed(rows)] + [each.device for each in studies.published()]
    return next((each for each in known if each != "cpu"), device)
