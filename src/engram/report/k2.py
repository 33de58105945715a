"""What runs have recorded of k2 = |g| / |r|, and what the paper prints of it."""

from __future__ import annotations

from collections.abc import Sequence

from engram.paper import Printed, printed_k2_share
from engram.report.summary import Summary

SHARE = "k2_below_1_percent"
ORDER = "theta_1_at_most_theta_2_percent"
_PAPERS_TASKS = 20


def recorded_k2(summaries: Sequence[Summary]) -> list[Summary]:
    """Return those that have recorded k2 on training tasks, those with fewer examples first."""
    found = [each for each in summaries if each.values(SHARE) and each.setting.split == "training"]
    return sorted(found, key=lambda each: (each.setting.examples, each.setting.tasks, each.method))


def papers_share(summary: Summary) -> Printed | None:
    """Return the share that the paper prints for these runs: MEGA-I on its 20 tasks."""
    benchmark, tasks, examples = summary.setting[:3]
    if (summary.method, benchmark, tasks) != ("mega-i", "permuted-mnist", _PAPERS_TASKS):
        return None
    return printed_k2_share(examples)


def histograms(summary: Summary) -> list[tuple[int, list[int]]]:
    """Return each run's first bin of log k2, in quarters, and its counts from there on."""
    texts = [row.outcome["facts"].get("log_k2_histogram", "") for row in summary.rows]
    return [read for text in texts if (read := _read(str(text))) is not None]


def _read(text: str) -> tuple[int, list[int]] | None:
    """Return the first bin and the counts.

    >>> _read("-3: 1 0 2"), _read("0:")
    ((-3, [1, 0, 2]), None)
    """
    first, _, counts = text.partition(":")
    try:
        numbers = [int(count) for count in counts.split()]
        return (int(first), numbers) if sum(numbers) > 0 else None
    except ValueError:  # somebody else's fact of that name
        return None
