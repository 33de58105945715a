"""Choices made on tuning tasks: used by ``engram run --tuned``, and shown."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from engram.app import runs
from engram.app.cli.console import count
from engram.app.cli.options import DEFAULT_STORE
from engram.errors import EngramError
from engram.lab import protocol
from engram.lab.settings import Scalar
from engram.plugins import plugin_files

if TYPE_CHECKING:
    from engram.lab.protocol import Spec


class TunedSettings:
    """The choices of a store, for runs on a benchmark by the name that the user gave it."""

    def __init__(self, benchmark: str, store: Path) -> None:
        self._benchmark, self._store = benchmark, store
        self._choices: list[runs.Choice] = []
        if store.is_file():
            with runs.Store(store, read_only=True) as opened:
                self._choices = opened.choices()

    def texts(self, spec: Spec, given: Mapping[str, str]) -> dict[str, str]:
        """Return what was chosen for a spec's method, as ``--set`` takes it; say so on stderr.

        It is the newest choice of those with as many examples in a task, or else of all; one made
        with the same other settings, as memories of other sizes are not, goes first. Nothing is
        chosen for a method that has nothing to search or is given all of it.
        """
        if not protocol.tuned_settings(spec).keys() - given.keys():
            return {}
        mine = [choice for choice in self._choices if _is_for(choice, spec)]
        if not mine:
            raise self._nothing(spec, given)
        alike = [choice for choice in mine if choice.identity["examples"] == spec.examples]
        same = [choice for choice in alike if _is_with(choice, spec)]
        newest = (same or alike or mine)[-1]
        _announce(spec.method, newest, len(mine), fewer=0 < len(alike) < len(mine))
        return {name: str(value) for name, value in newest.chosen.items()}

    def _nothing(self, spec: Spec, given: Mapping[str, str]) -> EngramError:
        # What cannot be tuned at all says so itself.
        protocol.tuning_specs(self._benchmark, spec.method, overrides=given)
        command = with_store(["engram", "tune", self._benchmark, spec.method], self._store)
        return EngramError(
            f"Nothing is chosen for {spec.method} on {self._benchmark} in {str(self._store)!r}: "
            f"`{command}` does it."
        )


def _is_for(choice: runs.Choice, spec: Spec) -> bool:
    names = choice.identity["benchmark"], choice.identity["method"]
    network = None if spec.network is None else spec.network.identity
    return names == (spec.benchmark, spec.method) and choice.identity.get("network") == network


def _is_with(choice: runs.Choice, spec: Spec) -> bool:
    held = choice.identity["settings"]
    return all(spec.settings.get(name) == value for name, value in held.items())


def _announce(method: str, chosen: runs.Choice, choices: int, *, fewer: bool) -> None:
    among = "chosen"
    if choices > 1:
        alike = " with as many examples" if fewer else ""
        among = f"of {choices} choices the newest{alike}, made"
    print(
        f"{method}: {values_text(chosen.chosen)}, {among} on {chosen.created[:10]} "
        f"from {len(chosen.trials)} trials of {origin(chosen)}.",
        file=sys.stderr,
    )


def choices_table(choices: Sequence[runs.Choice]) -> Table:
    """Return a table of choices, a line for each."""
    table = Table(
        title="Chosen on tuning tasks", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in ("benchmark", "method", "chosen"):
        table.add_column(column, no_wrap=True)
    table.add_column("average accuracy %", justify="right")
    table.add_column("trials", justify="right")
    for column in ("each", "date"):
        table.add_column(column)
    for choice in choices:
        names = (str(choice.identity[name]) for name in ("benchmark", "method"))
        best, trials = score_text(choice.ranking[0]), str(len(choice.trials))
        cells = (*names, values_text(choice.chosen), best, trials, origin(choice))
        table.add_row(*map(Text, (*cells, choice.created[:10])))
    return table


def values_text(settings: Mapping[str, Scalar]) -> str:
    """Return settings as they are typed.

    >>> values_text({"learning_rate": 0.1, "strength": 10.0})
    'learning_rate=0.1 strength=10.0'
    """
    return " ".join(f"{name}={value}" for name, value in settings.items())


def score_text(trial: runs.Trial) -> str:
    """Return a trial's score and its standard error.

    >>> score_text(runs.Trial({}, (90.0, 92.0))), score_text(runs.Trial({}, (90.0, None)))
    ('91.00 ± 1.00', 'diverged')
    """
    if trial.score is None:
        return "diverged"
    return f"{trial.score:.2f}" + ("" if trial.error is None else f" ± {trial.error:.2f}")


def origin(choice: runs.Choice) -> str:
    """Return what every trial of a choice was."""
    identity, passes = choice.identity, choice.identity.get("passes", 1)
    return ", ".join(
        [
            f"{count(identity['tasks'], 'task')} of {count(identity['examples'], 'example')}",
            *([] if passes == 1 else [f"{passes} passes"]),
            count(choice.seeds, "seed"),
        ]
    )


def with_store(words: Sequence[str], store: Path) -> str:
    """Return a command that a user may give; the store is named unless it is the usual one.

    Plugin files that are in use are named too.

    >>> with_store(["engram", "tune", "mine"], Path("my results.sqlite"))
    "engram tune mine --store 'my results.sqlite'"
    """
    named = [] if store == DEFAULT_STORE else ["--store", str(store)]
    files = [word for file in plugin_files() for word in ("--plugin", str(file))]
    return shlex.join([*words, *files, *named])
