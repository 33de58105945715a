"""Blocks of the front page: what a command prints, and the evidence in one small table."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from engram.app.report import remarks, results_table, save_plot
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import Summary, seeds_cell
from engram.app.report.tables import markdown_table, spread
from engram.errors import EngramError
from tools.docs.performance import NOT_MEASURED, newest_performance
from tools.docs.reproduction import papers_own

_BENCHMARKS = {"permuted-mnist": "Permuted MNIST", "split-cifar": "Split CIFAR"}
_FOLDER = "engram-results"  # where a command puts its results by default
_WIDTH = 160  # letters of a line, as where a command writes to a file
_OURS = "MEGA-II of a run"  # of the rows of the table ``peers``
_PEERS = {
    "its PermutedMNIST": "on its own PermutedMNIST",
    "without metrics, lean data": "on plain tensors without metrics",
}


def printed_by_run(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    """Return what ``engram run`` prints of these results, as a terminal shows it."""
    shown = io.StringIO()
    console = Console(file=shown, width=_WIDTH, markup=False, emoji=False, highlight=False)
    console.print(results_table(summaries, defaults))
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    lines = [line for line in lines if line] + remarks(summaries)
    with tempfile.TemporaryDirectory() as folder:
        plot = save_plot(summaries, defaults, Path(folder))
    lines += [f"Plot: {_FOLDER}/{plot.name}"] if plot is not None else []
    return "\n".join(["```text", *lines, "```"])


def evidence(
    summaries: Sequence[Summary], methods: Sequence[str], defaults: PaperDefaults, results: Path
) -> str:
    """Return our average accuracy beside the paper's, and our speed beside a peer's.

    ``results`` is the folder with the files of measured speed.
    """
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    found = {name: _on_real_data(name, trained, defaults) for name in _BENCHMARKS}
    header, lines = ["average accuracy, %"], [[method] for method in methods]
    for name, title in _BENCHMARKS.items():
        header += [title, "paper", "seeds"]
        for method, line in zip(methods, lines, strict=True):
            if method not in found[name]:
                raise EngramError(f"{method!r} was not run on {name} as the paper has it.")
            mine = found[name][method]
            paper = defaults.printed(mine, "average_accuracy")
            ours = spread(mine.statistic("average_accuracy"), 2)
            line += [ours, spread(paper, 2), seeds_cell(mine)]
    measured = [found[name][method] for name in found for method in methods]
    devices = ", ".join(sorted({each.machine for each in measured}))
    dates = sorted(row.created[:10] for each in measured for row in each.rows)
    receipt = f"Mean ± standard deviation over the seeds; {devices}, {dates[0]} to {dates[-1]}."
    return "\n\n".join([markdown_table(header, lines), receipt, _speed(results)])


def _on_real_data(
    benchmark: str, summaries: Sequence[Summary], defaults: PaperDefaults
) -> Mapping[str, Summary]:
    found = papers_own(benchmark, summaries, defaults)
    return next((each for each in found if not any(one.stand_in for one in each.values())), {})


def _speed(results: Path) -> str:
    """Return a step's time beside a peer's, which has A-GEM and no MEGA, in a sentence."""
    measured = newest_performance(results, "peers")
    if measured is None:
        return f"Speed beside a peer: {NOT_MEASURED}"
    rows = {row["beside"]: row for row in measured.tables["peers"] if row["candidate"] == _OURS}
    if not rows.keys() >= _PEERS.keys():
        raise EngramError(f"the table 'peers' must have {_OURS!r} beside {', '.join(_PEERS)}.")
    ours = rows[next(iter(_PEERS))]["milliseconds"]
    theirs = " and ".join(
        f"{rows[name]['beside_milliseconds']:.1f} ms {where}" for name, where in _PEERS.items()
    )
    peer = f"Avalanche {measured.versions['avalanche-lib']}"
    return (
        f"A step of MEGA-II on Permuted MNIST takes {ours:.1f} ms; one of A-GEM in {peer} takes "
        f"{theirs} ({measured.device}, {measured.created[:10]})."
    )
