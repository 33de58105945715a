"""In which order methods come, by two accounts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def rank_correlation(ones: Sequence[float], others: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, or None where all of either are equal.

    It is the correlation of the ranks; equal values have the mean of theirs.

    >>> rank_correlation([1, 2, 3], [10, 30, 20])
    0.5
    """
    if min(len(set(ones)), len(set(others))) < 2:
        return None
    return statistics.correlation(_ranks(ones), _ranks(others))


def told_order(values: Mapping[str, float]) -> str:
    """Return names by their values, the largest first, equal ones joined.

    >>> told_order({"van": 30.4, "mega-ii": 54.3, "ewc": 30.4})
    'mega-ii, van = ewc'
    """
    names = dict[float, list[str]]()
    for name in values:
        names.setdefault(values[name], []).append(name)
    return ", ".join(" = ".join(names[value]) for value in sorted(names, reverse=True))


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]
