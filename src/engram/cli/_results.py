"""``engram results``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from engram import report, runs
from engram.cli._choices import choices_table, count
from engram.cli._chosen_results import Chosen, write_csv
from engram.cli._console import print_json, stdout_console
from engram.cli._merge import merge_into
from engram.errors import EngramError
from engram.terminal import one_line


def show(
    path: Path,
    laboratory: runs.Laboratory,
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
        _tell(f"{held} are in {one_line(export)}.")
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
        _tell(f"There are no results in {one_line(path)}.")
    defaults = report.PaperDefaults(laboratory)
    console = stdout_console()
    for setting in dict.fromkeys(summary.setting for summary in summaries):
        alike = [summary for summary in summaries if summary.setting == setting]
        console.print(report.results_table(alike, defaults))
        for sentence in report.majority_baseline(alike):
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
        f"{path}: whole are {len(found.rows):,} of {count(found.seen['rows'], 'result')}, "
        f"{len(found.choices):,} of {count(found.seen['choices'], 'choice')} and "
        f"{len(found.step_files):,} of {count(found.seen['step_files'], 'file')} of step records."
    )
    if export is not None:
        runs.write_lines([*found.rows, *found.choices], export)
        _tell(f"What is whole is in {export}: `engram results --merge` takes it into a new store.")
    return 1 if found.faults else 0


def _settings(summary: report.Summary) -> dict[str, object]:
    settings = {"settings": summary.identity["settings"]}
    return {**settings, **report.as_json(summary)}


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
