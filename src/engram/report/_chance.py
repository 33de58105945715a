"""What guessing would give on somebody's own data."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report._summary import Summary

_FACT = "guess_percent"  # of the runs that tell it


def told_chance(summaries: Sequence[Summary]) -> list[str]:
    """Return what a guess has there, a sentence for each kind of heads; none of the paper's data.

    With heads by task a guess may be another class in every task.
    """
    told = dict[str, None]()
    for summary in summaries:
        of_each = " of each task" if summary.identity["settings"].get("heads") == "by-task" else ""
        for row in summary.rows:
            guess = row.outcome["facts"].get(_FACT)
            if isinstance(guess, int | float):
                told[
                    f"Always saying the most frequent class{of_each} would have {guess:.2f} % "
                    "average accuracy."
                ] = None
    return list(told)
