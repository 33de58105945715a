"""Results of a store: shown, written as CSV, exported, merged and verified."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from engram.app import report, runs
from engram.app.cli.choices import choices_table
from engram.app.cli.console import count, print_json, stdout_console
from engram.app.terminal import one_line
from engram.errors import EngramError, unknown
from engram.lab import benchmarks, protocol

_ABOUT = ("benchmark", "tasks", "examples", "split", "method")
_PLACE = re.compile("(folder|table):.")
_FORMULA = re.compile("[=+\\-@＝＋－＠\t\r\n]")  # the wide ones are East Asian keyboards'
_NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf)", re.IGNORECASE)
_MEASURES = ("average_accuracy", "forgetting", "lca_10")
_SQLITE = b"SQLite format 3\0"  # how such a file begins


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
        begins = benchmarks.benchmark(asked).name if _PLACE.match(asked) else asked
        return re.fullmatch(rf"{re.escape(begins)}-[0-9a-f]{{10}}", value) is not None


def show(
    path: Path,
    *,
    chosen: Chosen | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    export: Path | None = None,
    merge: Path | None = None,
) -> None:
    """Take in the file to merge, write the file to export, print what the store has then.

    What is written and printed is what is ``chosen``, everything unless given.
    """
    if as_json and as_csv:
        raise EngramError("--json and --csv are two answers to one question: give one of them.")
    if export is not None:
        runs.check_new(export)
    if merge is not None:
        merge_into(path, merge)
    with runs.Store(path, read_only=True) as store:
        wanted = chosen or Chosen()
        rows, choices = wanted.rows(store.rows()), wanted.choices(store.choices())
    if export is not None:
        runs.write_lines([*rows, *choices], export)
        held = f"{count(len(rows), 'result')} and {count(len(choices), 'choice')}"
        _note(f"{held} are in {one_line(export)}.")
    if as_csv:
        write_csv(rows)
        return
    summaries = report.summarise(rows)
    if as_json:
        entries = [{**summary.setting._asdict(), **_settings(summary)} for summary in summaries]
        listed = [choice.as_json() for choice in choices]
        print_json({"results": entries, "choices": listed})
        return
    if not (summaries or choices):
        _note(f"There are no results in {one_line(path)}.")
    defaults = report.PaperDefaults(protocol.specify)
    console = stdout_console()
    for setting in dict.fromkeys(summary.setting for summary in summaries):
        alike = [summary for summary in summaries if summary.setting == setting]
        console.print(report.results_table(alike, defaults))
        for sentence in report.remarks(alike):
            print(sentence)
    if choices:
        console.print(choices_table(choices))


def verify(path: Path, *, export: Path | None, others: Mapping[str, object]) -> int:
    """Say what in a store is whole, and name all that is not; return 1 if anything is not.

    What is whole is written to ``export``, if that is given. ``others`` are options that a store
    is not verified with.
    """
    for name, value in others.items():
        if value is not None:
            raise EngramError(f"--verify looks at the whole store, and takes no --{name}.")
    if export is not None:
        runs.check_new(export)
    found = runs.verify(path)
    for fault in found.faults:
        print(fault)
    print(
        f"{path}: {len(found.rows):,} of {count(found.seen['rows'], 'result')}, "
        f"{len(found.choices):,} of {count(found.seen['choices'], 'choice')} and "
        f"{len(found.step_files):,} of {count(found.seen['step_files'], 'file')} of step records "
        "are whole."
    )
    if export is not None:
        runs.write_lines([*found.rows, *found.choices], export)
        _note(f"What is whole is in {export}: `engram results --merge` takes it into a new store.")
    return 1 if found.faults else 0


def write_csv(rows: Sequence[runs.Row]) -> None:
    """Print a line for each run, the newest of those that are the same; see `plain_cell`."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    receipts = ("seconds", "device", "created", "failure", "data", "address", "network")
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
                report.network_label(network) if (network := row.identity.get("network")) else "",
            ]
            writer.writerow(map(plain_cell, cells))


def plain_cell(cell: object) -> object:
    r"""Return a cell of which a spreadsheet makes no formula, whoever wrote it.

    A text that begins like one, and is no number, has an apostrophe before it.

    >>> [plain_cell(cell) for cell in ("=1+1", "-1.5", -1.5, "cpu", None)]
    ["'=1+1", '-1.5', -1.5, 'cpu', None]
    >>> [plain_cell(cell) for cell in ("\t=1", "\r=1", "\n=1")]  # which no store holds
    ["'\t=1", "'\r=1", "'\n=1"]
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def _about(row: runs.Row, name: str) -> str:
    if name == "device":
        return row.device
    return str(row.identity.get(name, "training"))  # older results have no split


def merge_into(path: Path, source: Path) -> None:
    """Take the results and choices of a store or a file of JSON-lines into a store; say how many.

    What steps were made of comes with them where it lies beside the other store. A source that
    is wrong leaves nothing behind.
    """
    is_store = _is_store(source)
    if is_store and path.exists() and path.samefile(source):
        raise EngramError(f"merge must be another store than {str(path)!r} itself.")
    contents = _of_store(source) if is_store else runs.read_contents(source)
    with runs.Store(path) as store:
        _take_in(contents.rows, "results", store)
        _take_in(contents.choices, "choices", store)
    if is_store:
        for address in {row.address for row in contents.rows}:
            runs.copy_steps(address, source, path)


def _is_store(path: Path) -> bool:
    try:
        if path.exists() and not path.is_file():  # a pipe gives its beginning once
            return False
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error}.") from error


def _of_store(path: Path) -> runs.Contents:
    with runs.Store(path, read_only=True) as store:
        return runs.Contents(store.rows(), store.choices())


def _take_in(
    entries: Sequence[runs.Row] | Sequence[runs.Choice], name: str, store: runs.Store
) -> None:
    if entries or name == "results":
        added = store.add(entries)
        _note(f"{added} of {len(entries)} {name} were new and are stored.")


def _settings(summary: report.Summary) -> dict[str, object]:
    settings = {"settings": summary.identity["settings"]}
    return {**settings, **report.as_json(summary)}


def _note(text: str) -> None:
    print(text, file=sys.stderr)
