"""What a search on tuning tasks has found."""

from __future__ import annotations

from collections.abc import Iterable

from engram.report._summary import Summary


def best_of_each(summaries: Iterable[Summary]) -> list[Summary]:
    """Return each method's best trial, by the average accuracy over its seeds.

    A trial with a seed that diverged is none, nor is a method of which one setting was tried.
    """
    tried: dict[str, list[Summary]] = {}
    for summary in summaries:
        if summary.setting.split == "tuning":
            tried.setdefault(summary.method, []).append(summary)
    best = []
    for trials in tried.values():
        whole = [trial for trial in trials if not trial.failures]
        if len(trials) > 1 and whole:
            best.append(max(whole, key=_score))
    return best


def _score(summary: Summary) -> float:
    accuracy = summary.statistic("average_accuracy")
    return -1 if accuracy is None else accuracy.mean
