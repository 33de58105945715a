"""Choices made on tuning tasks, as a terminal shows them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from engram import runs
from engram.cli._options import DEFAULT_STORE
from engram.settings import Scalar


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


def command(words: Sequence[str], store: Path) -> str:
    """Return a command that a user may give; the store is named unless it is the usual one.

    >>> command(["engram", "tune", "mine"], Path("my results.sqlite"))
    "engram tune mine --store 'my results.sqlite'"
    """
    named = [] if store == DEFAULT_STORE else ["--store", str(store)]
    return shlex.join([*words, *named])


def count(number: int, name: str) -> str:
    """Return so many of a thing.

    >>> count(1, "seed"), count(1000, "seed")
    ('1 seed', '1,000 seeds')
    """
    return f"{number:,} {name}" + ("" if number == 1 else "s")
