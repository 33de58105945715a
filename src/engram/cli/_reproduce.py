"""``engram reproduce``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from engram import runs
from engram.cli import _report
from engram.cli._choices import count
from engram.cli._options import CHECKPOINT_EVERY
from engram.cli._run import Executor, execute
from engram.cli._signals import on_stop
from engram.cli._study_table import show_plan
from engram.errors import EngramError
from engram.studies import Planned, Study, plan, read_study
from engram.terminal import one_line

_MOST_RUNS = 100_000  # of a study: they are listed one by one


def reproduce(
    target: str,
    laboratory: runs.Laboratory,
    *,
    store: Path,
    device: str = "auto",
    seeds: int | None = None,
    dry_run: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
    executor: Executor = runs.execute,
) -> int:
    """Run what the store has not of a study, then write the report; return the exit code.

    What has no data is told and left out. With ``dry_run`` say what would be run, and make nothing.
    """
    if seeds is not None:
        runs.check_seeds(seeds)
    runs.check_interval(checkpoint_every)
    study = read_study(target, laboratory)
    place = runs.resolve_device(device)
    _check_size(study, seeds)
    with _looked_at(store) as held:
        planned = plan(study, held, laboratory, device=place, seeds=seeds)
        if dry_run:
            show_plan(study, planned, held.rows(), place)
            return 0
    _check_disk(store, planned)
    units = [unit for each in planned for unit in each.units]
    absent = _tell(planned, study.title)
    if len(absent) == len(planned):
        return 1
    command = _command(target, seeds, device)
    with runs.Store(store) as opened:
        failures = execute(units, opened, laboratory, command, place, executor, checkpoint_every)
    with on_stop("Stopped: what is finished is stored, and the same command writes the report."):
        _report.write(store, laboratory)
    return 1 if failures or absent else 0


def _check_size(study: Study, seeds: int | None) -> None:
    """Refuse more runs than can be listed: seeds may be any number."""
    wanted = sum((seeds or each.seeds) * len(each.specs) for each in study.runs)
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


def _tell(planned: Sequence[Planned], title: str) -> list[Planned]:
    """Say what is to be done and what cannot be, and return the latter."""
    wanted = sum(each.seeds for each in planned)
    to_do = f"{_missing(planned):,} of {count(wanted, 'run')} to do."
    print(f"{one_line(title)}: {to_do}", file=sys.stderr)
    absent = [each for each in planned if each.absent]
    for sentence in dict.fromkeys(f"{each.spec.benchmark}: {each.absent}" for each in absent):
        print(f"Left out, {sentence}", file=sys.stderr)
    return absent


def _missing(planned: Sequence[Planned]) -> int:
    return sum(each.missing for each in planned)


def _command(target: str, seeds: int | None, device: str) -> str:
    more = [] if seeds is None else ["--seeds", str(seeds)]
    return shlex.join(["engram", "reproduce", target, *more, "--device", device])
