"""Which results of a store are asked for, and these as a table for spreadsheets."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from engram import report, runs, streams
from engram.errors import unknown

_ABOUT = ("benchmark", "tasks", "examples", "split", "method")
_PLACE = re.compile("(folder|table):.")
_FORMULA = re.compile("[=+\\-@＝＋－＠\t\r\n]")  # the wide ones are East Asian keyboards'
_NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf)", re.IGNORECASE)
_MEASURES = ("average_accuracy", "forgetting", "lca_10")


@dataclass(frozen=True)
class Chosen:
    """What is asked for; None: whatever it is."""

    benchmark: str | None = None
    method: str | None = None
    split: str | None = None
    device: str | None = None

    def rows(self, held: Sequence[runs.Row]) -> list[runs.Row]:
        """Return the rows that are asked for; a name that none of them has is refused."""
        chosen = list(held)
        for name in (field.name for field in fields(self)):
            asked, known = getattr(self, name), {_about(row, name) for row in chosen}
            wanted = {each for each in known if self._wants(name, each)}
            if asked is not None and not wanted:
                raise unknown(f"{name} among these results called", asked, known)
            chosen = [row for row in chosen if _about(row, name) in wanted]
        return chosen

    def choices(self, held: Iterable[runs.Choice]) -> list[runs.Choice]:
        """Return the choices that are asked for; they are made on tuning tasks."""
        return [
            choice
            for choice in held
            if self._wants("benchmark", choice.identity["benchmark"])
            and self._wants("method", choice.identity["method"])
            and self._wants("split", "tuning")
            and self._wants("device", choice.device)
        ]

    def _wants(self, name: str, value: str) -> bool:
        """Whether a value is asked for; one's own data may be asked for as it was run."""
        asked = getattr(self, name)
        if asked is None or asked == value:
            return True
        if name != "benchmark":
            return False
        begins = streams.benchmark(asked).name if _PLACE.match(asked) else asked
        return re.fullmatch(rf"{re.escape(begins)}-[0-9a-f]{{10}}", value) is not None


def write_csv(rows: Sequence[runs.Row]) -> None:
    """Print a line for each run, the newest of those that are the same; see `plain_cell`."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    receipts = ("seconds", "device", "created", "failure", "data", "address")
    writer.writerow([*_ABOUT, "settings", "seed", *_MEASURES, *receipts])
    for summary in report.summarise(rows):
        for row in summary.rows:
            measured = [report.measure(row, name) for name in _MEASURES]
            cells = [
                *(_about(row, name) for name in _ABOUT),
                runs.canonical(row.identity["settings"]),
                row.seed,
                *("" if value is None else value for value in measured),
                row.seconds,
                row.device,
                row.created,
                row.outcome["failure"] or "",
                row.identity.get("data", ""),
                row.address,
            ]
            writer.writerow(map(plain_cell, cells))


def plain_cell(cell: object) -> object:
    """Return a cell of which a spreadsheet makes no formula, whoever wrote it.

    A text that begins like one, and is no number, has an apostrophe before it.

    >>> [plain_cell(cell) for cell in ("=1+1", "-1.5", -1.5, "cpu")]
    ["'=1+1", '-1.5', -1.5, 'cpu']
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def _about(row: runs.Row, name: str) -> str:
    if name == "device":
        return row.device
    return str(row.identity.get(name, "training"))  # whose split older results do not tell
