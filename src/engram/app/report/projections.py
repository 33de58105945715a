"""What was not run, by what is known: the time of whole runs, the size of what they hold."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import NamedTuple

from engram.app.paper import printed_methods
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import Summary, count_seeds
from engram.app.report.tables import duration

_HOURS, _SEEDS = 24, 5  # nobody waits longer than a day for as many seeds as the paper has
TOO_LONG_RULE = (
    f"A method that was run in part alone does not keep a claim from its mark where {_SEEDS} whole "
    f"runs, a seed each, would take more than {_HOURS} hours in proportion to the examples: the "
    "mark is that of the other numbers, and says what it was made without."
)


class ProjectedTime(NamedTuple):
    """A method that was run on a part of its examples: ``share`` of those of the paper's run."""

    measured: Summary
    share: float

    @property
    def seconds(self) -> float:
        """The time of a whole run, in proportion to the examples."""
        return self.measured.seconds / self.share

    @property
    def too_long(self) -> bool:
        """Whether nobody waits for it, by ``TOO_LONG_RULE``."""
        return _SEEDS * self.seconds > _HOURS * 3600

    @property
    def message(self) -> str:
        """The time of a whole run and its receipt."""
        made = self.measured
        tasks, examples = made.setting.tasks, made.setting.examples
        return (
            f"projected {_long_time(self.seconds)} a seed, from "
            f"{duration(made.seconds)} seconds measured for {tasks * examples:,} examples "
            f"({tasks} tasks of {examples:,}, {count_seeds(len(made.rows))}, {made.device}, "
            f"address {made.address})"
        )


def projected_times(
    benchmark: str, summaries: Sequence[Summary], defaults: PaperDefaults
) -> dict[str, ProjectedTime]:
    """Return, of the methods that the paper has and nobody ran whole, those run in part.

    Of several runs the longest speaks. A stand-in says nothing of the data it stands in for.
    """
    found = dict[str, ProjectedTime]()
    whole = set[str]()
    for each in summaries:
        if each.setting.benchmark != benchmark or each.stand_in or each.failures:
            continue
        share = defaults.share(each)
        if defaults.printed(each, "average_accuracy"):
            whole.add(each.method)
        elif share is not None and share < 1:
            longest = found.get(each.method)
            if longest is None or longest.share < share:
                found[each.method] = ProjectedTime(each, share)
    wanted = [name for name in printed_methods(benchmark) if name in found and name not in whole]
    return {name: found[name] for name in wanted}


def projected_sizes(name: str) -> Mapping[str, Mapping[str, int]]:
    """Return, by method, what it would hold on the paper's tasks, as runs record it.

    ``name`` is a benchmark's, by which the setting with all its tasks and examples goes too.

    >>> sorted(projected_sizes("split-cub")["prog-nn"])
    ['parameters', 'state_bytes']
    """
    return _projections().get(name, {})


def _long_time(seconds: float) -> str:
    """Return a long time as one says it.

    >>> _long_time(90.0), _long_time(45_000.0)
    ('1.5 minutes', '12.5 hours')
    """
    return f"{seconds / 60:,.1f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"


@functools.cache
def _projections() -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    text = resources.files("engram.app.report").joinpath("projections.json").read_text("utf-8")
    held: Mapping[str, Mapping[str, Mapping[str, int]]] = json.loads(text)["held"]
    return held
