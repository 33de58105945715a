"""Blocks of measured speed: of steps, of precisions, of whole runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from engram.app.report.comparison import (
    across_networks,
    across_precisions,
    compare,
    t_test_cells,
)
from engram.app.report.paper_defaults import PRECISION, PaperDefaults, network_label
from engram.app.report.performance import Rows, speed_markdown
from engram.app.report.summary import Summary, by_setting
from engram.app.report.tables import duration, escape_markdown, markdown_table, spread
from engram.app.runs import Row
from engram.errors import EngramError
from engram.lab import protocol

_PATTERN = "performance-*.json"
NOT_MEASURED = "Not measured yet."
_NAMES = {
    "engram": "Engram",
    "torch": "PyTorch",
    "python": "Python",
    "avalanche-lib": "Avalanche",
    "torchjd": "TorchJD",
}
_COMMIT_DIGITS = 10
_TEST = ("difference", "std", "t", "p", "seeds")
_RECEIPT = ("device", "date", "address")
_BOUNDS = {  # seconds of five runs on an H200
    ("permuted-mnist", "mega-ii"): 18,
    ("permuted-mnist", "mega-i"): 16,
    ("permuted-mnist", "a-gem"): 16,
    ("permuted-mnist", "van"): 8,
    ("split-cifar", "mega-ii"): 162,
}
_FIVE = 5
_HEAD = ("run", "seeds", "seconds", "at most", "device", "date", "command", "address")


def performance_block(folder: Path, name: str) -> str:
    """Return one of ``SPEED_TABLES`` as it was last measured on each device, with its receipt.

    It is found in the files of a folder, of which some may hold other tables.
    """
    newest = {each.device: each for each in _with_table(folder, name)}
    blocks = [
        f"{_receipt(each)}\n\n{speed_markdown(name, each.tables[name])}" for each in newest.values()
    ]
    return "\n\n".join(blocks) if blocks else NOT_MEASURED


def newest_performance(folder: Path, name: str) -> Performance | None:
    """Return what a table was last measured with, on whatever device, or None."""
    having = _with_table(folder, name)
    return having[-1] if having else None


def _with_table(folder: Path, name: str) -> list[Performance]:
    """Return what has a table of that name, the oldest first."""
    found = [_read(path) for path in sorted(folder.glob(_PATTERN))]
    return sorted((each for each in found if name in each.tables), key=lambda each: each.created)


def precision_block(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return what was trained in more than one precision: accuracies, paired test, receipts."""
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    pairs = [
        pair
        for lines in by_setting(trained).values()
        for pair in across_precisions(lines, defaults)
    ]
    if not pairs:
        return NOT_MEASURED
    named = [[_name(each) for each in pair] for pair in pairs]
    return _compared("precision", pairs, named, defaults, timed=True)


def networks_block(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return what was trained with a network of somebody's own, beside the benchmark's own."""
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    pairs = across_networks(trained)
    if not pairs:
        return NOT_MEASURED
    named = [[network_label(own.identity["network"]), "the benchmark's"] for own, _ in pairs]
    return _compared("network", pairs, named, defaults, timed=False)


def _compared(
    what: str,
    pairs: Sequence[tuple[Summary, Summary]],
    named: Sequence[Sequence[str]],
    defaults: PaperDefaults,
    *,
    timed: bool,
) -> str:
    """Return two tables of pairs of runs that differ in one thing: the numbers, the receipts."""
    compared, receipts = [], dict[str, list[str]]()
    for (other, usual), names in zip(pairs, named, strict=True):
        run = f"{defaults.label(usual)} on {usual.setting.title}"
        accuracies = [spread(each.statistic("average_accuracy"), 2) for each in (other, usual)]
        result = compare(other, usual)
        both = [names[0], accuracies[0], names[1], accuracies[1]]
        compared.append([run, *both, *t_test_cells(result), str(result.seeds)])
        for name, each in zip(names, (other, usual), strict=True):
            cells = [duration(each.seconds)] if timed else []
            receipts[each.address] = [run, name, *cells, each.device, each.dates, each.address]
    kinds = ["text", "text", "number", "text", *["number"] * 6]
    accuracy = "average accuracy %"
    receipt = ["seconds", *_RECEIPT] if timed else [*_RECEIPT]
    return "\n\n".join(
        [
            markdown_table(["run", what, accuracy, "beside", accuracy, *_TEST], compared, kinds),
            markdown_table(
                ["run", what, *receipt],
                [*receipts.values()],
                ["text", "text", *["number"] * len(receipt)],
            ),
        ]
    )


def whole_runs_block(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return the seconds of every stack of five whole runs for which a goal was set."""
    lines = []
    for benchmark, method in _BOUNDS:
        for summary in summaries:
            if (summary.setting.benchmark, summary.method) == (benchmark, method):
                stacks = _stacks(summary, defaults)
                lines += [[*_line(stack), summary.address] for stack in stacks]
    kinds = ["text", "number", "number", "number", "text", "text", "text", "text"]
    return markdown_table(_HEAD, lines, kinds) if lines else NOT_MEASURED


class Performance(NamedTuple):
    """What was measured in one go: tables by their names, on which device, when and with what."""

    device: str
    created: str
    versions: Mapping[str, str]
    command: str
    tables: Mapping[str, Rows]


def _read(path: Path) -> Performance:
    try:
        return Performance(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise EngramError(f"{str(path)!r} holds no measured speed: {error}.") from None


def _receipt(measured: Performance) -> str:
    shown = {**measured.versions}
    if "commit" in shown:
        digits, changes, _ = shown["commit"].partition("+")
        shown["commit"] = digits[:_COMMIT_DIGITS] + (changes and " with changes")
    versions = [f"{_NAMES.get(name, name)} {each}" for name, each in shown.items()]
    device = measured.device[:1].upper() + measured.device[1:]
    made = f"{device}, {measured.created[:10]}, {', '.join(versions)}"
    return f"{escape_markdown(made)}; `{measured.command}`:"


def _name(summary: Summary) -> str:
    """Return the precision of some runs; what is not in their settings is what is usual."""
    given = summary.identity["settings"].get(PRECISION)
    if given is not None:
        return str(given)
    known = protocol.settings_help(summary.setting.benchmark, summary.method)
    return next((str(item.value) for item in known if item.name == PRECISION), "usual")


def _stacks(summary: Summary, defaults: PaperDefaults) -> Iterator[Summary]:
    """Yield the runs of the paper's own setting that trained together, five at once."""
    usual = defaults.share(summary) == 1 and defaults.is_preset(summary)
    if not usual or defaults.label(summary) != summary.method:
        return
    stacks: dict[tuple[str, float], list[Row]] = {}
    for row in summary.rows:
        if row.outcome["facts"].get("stacked") == _FIVE:
            stacks.setdefault((row.command, row.seconds), []).append(row)  # they share their time
    for rows in stacks.values():
        if len(rows) == _FIVE and not any(row.outcome["failure"] for row in rows):
            yield Summary(tuple(rows))


def _line(stack: Summary) -> list[str]:
    return [
        f"{stack.method} on {stack.setting.title}",
        ", ".join(str(row.seed) for row in stack.rows),
        duration(sum(row.seconds for row in stack.rows)),
        str(_BOUNDS[stack.setting.benchmark, stack.method]),
        stack.device,
        stack.dates,
        stack.rows[0].command,
    ]
