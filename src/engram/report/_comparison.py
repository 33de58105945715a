"""Two lines on the same seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engram.errors import EngramError
from engram.report._data_names import data_name
from engram.report._identity import PRECISION
from engram.report._measures import measure
from engram.report._numbers import NOTHING
from engram.report._standard import Standard
from engram.report._student import two_sided_p
from engram.report._summary import Summary
from engram.runs import canonical


@dataclass(frozen=True)
class Comparison:
    """The paired differences, first minus second, of the average accuracy in points.

    ``std`` is the sample standard deviation of the differences and ``t`` is
    mean / (std / sqrt(seeds)), with seeds - 1 degrees of freedom; ``t`` and ``p`` are None where
    all the differences are equal.
    """

    seeds: int
    mean: float
    std: float
    t: float | None
    p: float | None
    wins: int
    losses: int


def compare(first: Summary, second: Summary) -> Comparison:
    """Compare two lines on the seeds that both have finished."""
    differences = _differences(first, second)
    if len(differences) < 2:
        raise EngramError(
            f"{first.method} and {second.method} share {len(differences)} finished seeds in "
            f"{first.setting.title}; a comparison takes at least 2."
        )
    mean, std = statistics.fmean(differences), statistics.stdev(differences)
    t = mean / (std / math.sqrt(len(differences))) if std > 0 else None
    return Comparison(
        seeds=len(differences),
        mean=mean,
        std=std,
        t=t,
        p=None if t is None else two_sided_p(t, len(differences) - 1),
        wins=sum(difference > 0 for difference in differences),
        losses=sum(difference < 0 for difference in differences),
    )


def told_test(result: Comparison) -> list[str]:
    """Return the mean and the standard deviation of the differences, t and p, as tables do."""
    return [
        f"{result.mean:+.3f}",
        f"{result.std:.3f}",
        NOTHING if result.t is None else f"{result.t:.2f}",
        NOTHING if result.p is None else f"{result.p:.2g}",
    ]


def comparable(
    summaries: Sequence[Summary], pair: tuple[str, str]
) -> list[tuple[Summary, Summary]]:
    """Return what a pair of names stands for in one setting, on the same data.

    Both are in the same precision, and there are seeds to compare.
    """
    ones, others = ([summary for summary in summaries if summary.method == name] for name in pair)
    return [
        (one, other)
        for one in ones
        for other in others
        if data_name(one.identity) == data_name(other.identity)
        and precision(one) == precision(other)
        and len(_differences(one, other)) >= 2
    ]


def across_precisions(
    summaries: Sequence[Summary], standard: Standard
) -> list[tuple[Summary, Summary]]:
    """Return the lines that differ in precision alone, where there are seeds to compare.

    The second of a pair is in the usual precision or, where none is, in the one met first.
    """
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        settings = {**summary.identity["settings"], PRECISION: None}
        groups.setdefault(canonical({**summary.identity, "settings": settings}), []).append(summary)
    ordered = [sorted(group, key=standard.strangeness) for group in groups.values()]
    return [
        (other, first)
        for first, *others in ordered
        for other in others
        if len(_differences(other, first)) >= 2
    ]


def precision(summary: Summary) -> object:
    """Return the precision that some runs were given; None is the usual one."""
    return summary.identity["settings"].get(PRECISION)


def _differences(first: Summary, second: Summary) -> list[float]:
    others = {row.seed: measure(row, "average_accuracy") for row in second.rows}
    return [
        ours - theirs
        for row in first.rows
        if (ours := measure(row, "average_accuracy")) is not None
        and (theirs := others.get(row.seed)) is not None
    ]
