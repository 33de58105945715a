"""What a search on tuning tasks has found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engram.report._summary import Summary

_WORDS = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


class Search(NamedTuple):
    """The trials of one method; ``best`` is the first of those with the best average accuracy.

    A trial with a seed that diverged is no candidate.
    """

    best: Summary
    tried: int
    candidates: int
    equals: int  # candidates that have the best accuracy

    @property
    def equal(self) -> str:
        """Which trials are equal, if all candidates are: ``all five``; else nothing."""
        if self.equals < max(self.candidates, 2):
            return ""
        told = "both" if self.equals == 2 else f"all {_WORDS.get(self.equals, self.equals)}"
        return told if self.candidates == self.tried else f"{told} that did not diverge"


def searches(summaries: Iterable[Summary]) -> list[Search]:
    """Return what was found for each method of which more than one setting was tried."""
    tried: dict[str, list[Summary]] = {}
    for summary in summaries:
        if summary.setting.split == "tuning":
            tried.setdefault(summary.method, []).append(summary)
    found = []
    for trials in tried.values():
        candidates = [trial for trial in trials if not trial.failures]
        if len(trials) > 1 and candidates:
            scores = [_score(trial) for trial in candidates]
            best = candidates[scores.index(max(scores))]
            equals = scores.count(max(scores))
            found.append(Search(best, len(trials), len(candidates), equals))
    return found


def _score(summary: Summary) -> float:
    accuracy = summary.statistic("average_accuracy")
    return -1 if accuracy is None else accuracy.mean
