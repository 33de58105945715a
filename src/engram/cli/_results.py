"""``engram results``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engram import report, runs
from engram.cli._console import stdout_console


def show(
    path: Path,
    laboratory: runs.Laboratory,
    *,
    as_json: bool = False,
    export: Path | None = None,
    merge: Path | None = None,
) -> None:
    """Take in the file to merge, write the file to export, print what the store has then."""
    rows_to_merge = [] if merge is None else runs.read_lines(merge)
    with runs.Store(path, read_only=merge is None) as store:
        if merge is not None:
            added = store.add(rows_to_merge)
            _tell(f"{added} of {len(rows_to_merge)} results were new and are stored.")
        rows = store.rows()
    if export is not None:
        _tell(f"{runs.write_lines(rows, export)} results are in {export}.")
    summaries = report.summarise(rows)
    if as_json:
        entries = [{**summary.setting._asdict(), **_settings(summary)} for summary in summaries]
        print(json.dumps({"results": entries}, indent=1))
        return
    standard = report.Standard(laboratory)
    console = stdout_console()
    for setting in dict.fromkeys(summary.setting for summary in summaries):
        chosen = [summary for summary in summaries if summary.setting == setting]
        console.print(report.results_table(chosen, standard))


def _settings(summary: report.Summary) -> dict[str, object]:
    settings = {"settings": summary.identity["settings"]}
    return {**settings, **report.as_json(summary)}


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
