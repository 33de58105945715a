"""Where methods are run and compared, and the numbers of one method over its seeds.

Also how the command line shows them: a table, or JSON.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from engram.app.paper import Printed
from engram.app.report.measures import GUESS, NEWEST, Statistic, measure, metrics_for, quantity
from engram.app.report.stand_ins import StandIn, data_name, is_other, short_data, stand_in
from engram.app.report.tables import duration, spread
from engram.app.runs import Row, canonical

if TYPE_CHECKING:
    from engram.app.report.paper_defaults import PaperDefaults

# Benchmarks whose tasks differ in size: AwA2's, and one's own data, named by ten digits of it.
_UNEVEN = re.compile(r"^split-awa$|-[0-9a-f]{10}$")
_CONTRADICTED = 5.0  # points from which on old and new are said to contradict each other


class Setting(NamedTuple):
    """Methods are compared where these agree."""

    benchmark: str
    tasks: int
    examples: int
    split: str = "training"
    stand_in: str = ""  # the label of what stands in for the benchmark's data, if anything does
    other: str = ""  # the name of data that is neither the paper's nor a listed stand-in

    @property
    def place(self) -> str:
        """The benchmark, and what it was run on where that is not its own data.

        >>> Setting("split-awa", 17, 3000, stand_in="50 classes of TinyImageNet").place
        'split-awa (stand-in: 50 classes of TinyImageNet)'
        """
        data = f"stand-in: {self.stand_in}" if self.stand_in else ""
        data += f"data {self.other}" if self.other else ""
        return f"{self.benchmark} ({data})" if data else self.benchmark

    @property
    def title(self) -> str:
        """What a reader calls it.

        >>> Setting("split-awa", 17, 3000).title
        'split-awa, 17 tasks of up to 3,000 examples'
        """
        kind = "" if self.split == "training" else f"{self.split} "
        most = "up to " if _UNEVEN.search(self.benchmark) else ""
        return f"{self.place}, {self.tasks:,} {kind}tasks of {most}{self.examples:,} examples"

    @property
    def slug(self) -> str:
        """What a file is called after it."""
        label = re.sub(r"[^a-z0-9]+", "-", self.stand_in.lower()).strip("-")
        kind = f"-stand-in-{label}" if label else f"-{self.other}" if self.other else ""
        kind += "" if self.split == "training" else f"-{self.split}"
        return f"{self.benchmark}{kind}-{self.tasks}x{self.examples}"


@dataclass(frozen=True)
class Summary:
    """One method in one setting: its newest result for each seed."""

    rows: tuple[Row, ...]  # in the order of their seeds

    @property
    def identity(self) -> Mapping[str, Any]:
        """What was run, seeds aside."""
        return self.rows[0].identity

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.identity["method"])

    @property
    def setting(self) -> Setting:
        """Where the method was run."""
        names = ("benchmark", "tasks", "examples", "split")
        known = {name: self.identity[name] for name in names if name in self.identity}
        if self.stand_in:
            return Setting(**known, stand_in=self.stand_in.label)
        data = data_name(self.identity)
        return Setting(**known, other=short_data(data) if is_other(data) else "")

    @property
    def stand_in(self) -> StandIn | None:
        """What stands in for the benchmark's data, if it is a listed stand-in."""
        return stand_in(self.identity)

    @property
    def seconds(self) -> float:
        """Mean wall-clock seconds of a run."""
        return statistics.fmean(row.seconds for row in self.rows)

    @property
    def device(self) -> str:
        """The device, or all of them."""
        return ", ".join(sorted({row.device for row in self.rows}))

    @property
    def machine(self) -> str:
        """The device, or all of them, a CPU by its model where the runs name it."""
        return ", ".join(sorted({_machine(row) for row in self.rows}))

    @property
    def dates(self) -> str:
        """The day of the runs, or the first and the last."""
        days = sorted({row.created[:10] for row in self.rows})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"

    @property
    def commands(self) -> list[str]:
        """What was typed to make the runs."""
        return list(dict.fromkeys(row.command for row in self.rows))

    @property
    def address(self) -> str:
        """Ten digits for these runs."""
        return set_address([self])

    @property
    def failures(self) -> dict[int, str]:
        """Why seeds have no numbers, for those that have none."""
        return {row.seed: row.outcome["failure"] for row in self.rows if row.outcome["failure"]}

    def statistic(self, metric: str) -> Statistic | None:
        """Return a metric over the seeds, in the paper's units, or None where it is undefined."""
        return Statistic.over([measure(row, metric) for row in self.rows])

    def values(self, name: str) -> list[float]:
        """Return a quantity of every run that has it."""
        return [value for row in self.rows if (value := quantity(row, name)) is not None]

    def mean(self, name: str) -> float | None:
        """Return the mean of a quantity over the runs that have it, or None if none has."""
        known = self.values(name)
        return statistics.fmean(known) if known else None


def _machine(row: Row) -> str:
    return str(row.outcome["facts"].get("cpu", "cpu")) if row.device == "cpu" else row.device


def summarise(rows: Iterable[Row]) -> list[Summary]:
    """Group rows by what was run, in the order of appearance; later results replace earlier."""
    newest: dict[str, Row] = {}
    for row in rows:
        if row.address not in newest or newest[row.address].created <= row.created:
            newest[row.address] = row
    groups: dict[str, list[Row]] = {}
    for row in newest.values():
        groups.setdefault(canonical(row.identity), []).append(row)
    return [Summary(tuple(sorted(group, key=lambda row: row.seed))) for group in groups.values()]


def by_setting(summaries: Iterable[Summary]) -> dict[Setting, list[Summary]]:
    """Gather the methods that can be compared, in the order of appearance."""
    gathered: dict[Setting, list[Summary]] = {}
    for summary in summaries:
        gathered.setdefault(summary.setting, []).append(summary)
    return gathered


def by_data(summaries: Iterable[Summary]) -> list[list[Summary]]:
    """Gather what was run on the same data: stand-ins last, and what has more runs first."""
    gathered: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries:
        key = summary.setting.stand_in, data_name(summary.identity)
        gathered.setdefault(key, []).append(summary)
    runs = {key: sum(len(each.rows) for each in alike) for key, alike in gathered.items()}
    return [gathered[key] for key in sorted(gathered, key=lambda key: (key[0], -runs[key], key))]


def set_address(summaries: Iterable[Summary]) -> str:
    """Return ten digits for a set of results: sha256 of their addresses, sorted, one a line."""
    addresses = sorted(row.address for summary in summaries for row in summary.rows)
    return hashlib.sha256("\n".join(addresses).encode()).hexdigest()[:10]


def failure_message(summary: Summary) -> str | None:
    """Return how many seeds diverged, and why, without a full stop; None if none did.

    ``all 5 seeds diverged: the weights became non-finite in task 2 of 17 (learning_rate 0.1)``
    """
    seeds_by_reason: dict[str, list[int]] = {}
    for seed, reason in summary.failures.items():
        seeds_by_reason.setdefault(_inside_a_sentence(reason), []).append(seed)
    if not seeds_by_reason:
        return None
    total, failed = len(summary.rows), len(summary.failures)
    some = f"all {total} seeds" if failed == total > 1 else f"{failed} of {count_seeds(total)}"
    if len(seeds_by_reason) == 1 and failed == total:
        return f"{some} diverged: {next(iter(seeds_by_reason))}"
    parts = [f"{_seeds(seeds)}: {reason}" for reason, seeds in seeds_by_reason.items()]
    return f"{some} diverged: {'; '.join(parts)}"


def count_seeds(count: int) -> str:
    """Return ``1 seed``, ``2 seeds``."""
    return "1 seed" if count == 1 else f"{count} seeds"


def seeds_cell(summary: Summary) -> str:
    """Return how many seeds a line is of: ``5``, or ``5 (1 failed)``."""
    failed = len(summary.failures)
    return f"{len(summary.rows)}" + (f" ({failed} failed)" if failed else "")


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _inside_a_sentence(sentence: str) -> str:
    first = sentence[:1].lower() if sentence[1:2].islower() else sentence[:1]
    return first + sentence[1:].removesuffix(".")


def remarks(summaries: Sequence[Summary]) -> list[str]:
    """Return what is said below a table of results of one's own data, sentence by sentence."""
    return [*majority_baseline(summaries), *contradictions(summaries), *_at_the_end(summaries)]


_SAID = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "exact_match": "all labels right"}


def _at_the_end(summaries: Sequence[Summary]) -> list[str]:
    """Return what else is measured of several labels and of numbers, a sentence for each method."""
    sentences = []
    for summary in summaries:
        found = {
            title: mean
            for name, title in _SAID.items()
            if (mean := summary.mean(f"final_{name}")) is not None
        }
        if found:
            values = ", ".join(f"{title} {mean:.4g}" for title, mean in found.items())
            sentences.append(f"{summary.method} at the end, mean over the tasks: {values}.")
    return sentences


def contradictions(summaries: Sequence[Summary]) -> list[str]:
    """Return where the newest task contradicts the older ones by 5 points or more, and a remedy.

    That is a fact of the data (`engram.lab.benchmarks.contradiction`), whatever a method makes of
    it; then the method with the best average is said to be behind on the newest task, if it is.
    """
    facts = [row.outcome["facts"] for summary in summaries for row in summary.rows]
    found = [fact.get("contradiction_percent") for fact in facts]
    points = max((each for each in found if isinstance(each, int | float)), default=0.0)
    if points < _CONTRADICTED:
        return []
    sentences = [
        f"Old and new contradict each other: of the newest task's examples that look like older "
        f"ones, the older answers are right for at least {points:.0f} points fewer than the newest "
        "task's own."
    ]
    known = [each for each in summaries if each.statistic(NEWEST.name) is not None]
    known = [each for each in known if each.method != "multi-task"]  # which has no newest task
    best, newest = (
        max(known, key=lambda each: _mean(each, name), default=None)
        for name in ("average_accuracy", NEWEST.name)
    )
    if best is not None and newest is not None and best is not newest:
        sentences.append(
            f"The best average, of {best.method}, is partly for answers that are no longer right: "
            f"on the newest task it has {_mean(best, NEWEST.name):.2f} %, {newest.method} "
            f"{_mean(newest, NEWEST.name):.2f} %."
        )
    sentences.append("With --set max_age=N a memory lets go of what is older than N tasks.")
    return [" ".join(sentences)]


def _mean(summary: Summary, metric: str) -> float:
    found = summary.statistic(metric)
    return -math.inf if found is None else found.mean


def majority_baseline(summaries: Sequence[Summary]) -> list[str]:
    """Return what a guess has there, a sentence for each kind of heads; none of the paper's data.

    With heads by task a guess may be another class in every task.
    """
    sentences = dict[str, None]()
    for summary in summaries:
        of_each = " of each task" if summary.identity["settings"].get("heads") == "by-task" else ""
        for row in summary.rows:
            guess = row.outcome["facts"].get(GUESS)
            if isinstance(guess, int | float):
                sentences[
                    f"Always saying the most frequent class{of_each} would have {guess:.2f} % "
                    "average accuracy."
                ] = None
    return list(sentences)


def results_table(summaries: Sequence[Summary], defaults: PaperDefaults) -> Table:
    """Return a table of methods in one setting; the paper's numbers where that is its own."""
    title, labels = defaults.heading(summaries)
    printed = [defaults.printed(summary, "average_accuracy") for summary in summaries]
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("method", overflow="fold")  # it gives way, so that no number does
    metrics = metrics_for(row for summary in summaries for row in summary.rows)
    for metric in metrics:
        table.add_column(metric.title, justify="right", min_width=11)
    for column in ("seeds", "seconds", *(["paper %"] if any(printed) else [])):
        table.add_column(column, justify="right")
    for summary, label, paper in zip(summaries, labels, printed, strict=True):
        cells = [
            label,
            *(_tight(summary.statistic(metric.name), metric.digits) for metric in metrics),
            seeds_cell(summary),
            duration(summary.seconds),
            *([_tight(paper, 2)] if any(printed) else []),
        ]
        table.add_row(*map(Text, cells))
    return table


def _tight(number: Statistic | Printed | None, digits: int) -> str:
    return spread(number, digits).replace(" ", "")  # or it would not fit 80 columns


def as_json(summary: Summary) -> dict[str, Any]:
    """Return one entry of ``results``; ``failures`` is there only where a seed has failed."""
    numbers = {metric.name: summary.statistic(metric.name) for metric in metrics_for(summary.rows)}
    entry = {
        "method": summary.method,
        **{
            name: None if number is None else dataclasses.asdict(number)
            for name, number in numbers.items()
        },
        "seeds": len(summary.rows),
        "seconds": summary.seconds,
        "device": summary.device,
    }
    if "network" in summary.identity:
        entry["network"] = summary.identity["network"]
    return {**entry, "failures": summary.failures} if summary.failures else entry
