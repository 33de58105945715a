"""What whole runs take that train side by side, from the first draw to the last measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engram.report._markdown import markdown_table
from engram.report._numbers import duration
from engram.report._performance import NOT_MEASURED
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.runs import Row

_BOUNDS = {  # seconds of five runs on an H200
    ("permuted-mnist", "mega-ii"): 18,
    ("permuted-mnist", "mega-i"): 16,
    ("permuted-mnist", "a-gem"): 16,
    ("permuted-mnist", "van"): 8,
    ("split-cifar", "mega-ii"): 162,
}
_FIVE = 5
_HEAD = ("run", "seeds", "seconds", "at most", "device", "date", "command", "address")


def whole_runs_block(summaries: Sequence[Summary], standard: Standard) -> str:
    """Return the seconds of every stack of five whole runs for which a goal was set."""
    lines = []
    for benchmark, method in _BOUNDS:
        for summary in summaries:
            if (summary.setting.benchmark, summary.method) == (benchmark, method):
                stacks = _stacks(summary, standard)
                lines += [[*_line(stack), summary.address] for stack in stacks]
    kinds = ["text", "number", "number", "number", "text", "text", "text", "text"]
    return markdown_table(_HEAD, lines, kinds) if lines else NOT_MEASURED


def _stacks(summary: Summary, standard: Standard) -> Iterator[Summary]:
    """Yield the runs of the paper's own setting that trained together, five at once."""
    usual = standard.share(summary) == 1 and standard.is_preset(summary)
    if not usual or standard.label(summary) != summary.method:
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
