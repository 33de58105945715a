"""What evidence says: intervals and tests for two models on the same examples, in float64.

Every interval here is the set of values that its test does not refuse, so that a bound and a
p-value never disagree. docs/production/gate.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.errors import EngramError, shown

LEAST_FOR_MEANS = 30
"""Fewer differences than this have no interval: a mean of few need not be nearly normal."""

_HALVINGS = 52  # of an interval of length 2: to a few units of 1e-16
_NORMAL = NormalDist()


class Interval(NamedTuple):
    """An estimate between two bounds."""

    estimate: float
    low: float
    high: float


def paired_shares(gained: int, lost: int, total: int, level: float) -> Interval:
    """Return Tango's score interval of the difference of two paired shares, after less before.

    Of ``total`` examples ``gained`` were wrong before and are right after, ``lost`` the other way
    round. Each bound holds with probability ``level``. Without examples it is all of [-1, 1].
    """
    _check_counts(gained, lost, total)
    if not total:
        return Interval(math.nan, -1.0, 1.0)
    quantile = _NORMAL.inv_cdf(level)
    estimate = (gained - lost) / total
    return Interval(
        estimate,
        _last_true(lambda value: _score(gained, lost, total, value) >= quantile, -1.0, estimate),
        -_last_true(lambda value: _score(lost, gained, total, value) >= quantile, -1.0, -estimate),
    )


def paired_shares_below(gained: int, lost: int, total: int, null: float) -> float:
    """Return how probable so low a difference is where the true one is ``null``; or 1 of none."""
    _check_counts(gained, lost, total)
    if not total:
        return 1.0
    return _NORMAL.cdf(_score(gained, lost, total, null))


def _score(gained: int, lost: int, total: int, null: float) -> float:
    """Return Tango's statistic: how far the counts are from a difference of ``null``."""
    distance = gained - lost - total * null
    linear = (2 * total - gained + lost) * null - gained - lost
    constant = -lost * null * (1 - null)
    # The likeliest share of those that are lost, where the difference is `null`.
    root = math.sqrt(max(linear**2 - 8 * total * constant, 0.0))
    likeliest = (root - linear) / (4 * total)
    variance = total * (2 * likeliest + null * (1 - null))
    if variance <= 1e-12 * total:
        return math.copysign(math.inf, distance) if abs(distance) > 1e-9 * total else 0.0
    return distance / math.sqrt(variance)


def share(count: int, total: int, level: float) -> Interval:
    """Return Clopper and Pearson's exact interval of a share; each bound holds with ``level``."""
    _check_counts(count, 0, total)
    if not total:
        return Interval(math.nan, 0.0, 1.0)
    return Interval(
        count / total,
        _last_true(lambda value: share_above(count, total, value) <= 1 - level, 0.0, 1.0),
        1 - _last_true(lambda value: share_above(total - count, total, value) <= 1 - level, 0, 1),
    )


def share_above(count: int, total: int, null: float) -> float:
    """Return how probable ``count`` or more of ``total`` are where the true share is ``null``."""
    if count <= 0:
        return 1.0
    return regularised_beta(null, count, total - count + 1)


def independent_shares(first: tuple[int, int], second: tuple[int, int], level: float) -> Interval:
    """Return Newcombe's interval of a share less another, of samples that share no example.

    It squares and adds how far the exact bounds of both are from their estimates.
    """
    one, other = share(*first, level), share(*second, level)
    estimate = one.estimate - other.estimate
    return Interval(
        estimate,
        estimate - math.hypot(one.estimate - one.low, other.high - other.estimate),
        estimate + math.hypot(one.high - one.estimate, other.estimate - other.low),
    )


def independent_shares_above(
    first: tuple[int, int], second: tuple[int, int], null: float, level: float
) -> float:
    """Return how probable so high a difference is where the true one is ``null``.

    It is the normal probability of the distance, in units of the half interval towards ``null``:
    at ``level`` the bound of `independent_shares` says the same.
    """
    found = independent_shares(first, second, level)
    unit = (found.estimate - found.low) / _NORMAL.inv_cdf(level)
    return 1 - _NORMAL.cdf((found.estimate - null) / unit)


def means(differences: NDArray[np.float64], level: float, unit: float = 0.0) -> Interval:
    """Return an interval of the mean of paired differences; each bound holds with ``level``.

    A mean that is ``d`` away has at least the spread of examples that differ by ``unit``: the
    variance of the differences is taken to be ``unit * |d|`` larger than it is found. So a few
    examples that do not differ leave room for others that do, as they do in Tango's interval. With
    a ``unit`` of 0 it is Student's interval. Fewer than 30 differences give no bounds.
    """
    count = len(differences)
    estimate = float(differences.mean()) if count else math.nan
    if count < LEAST_FOR_MEANS or not np.isfinite(differences).all():
        return Interval(estimate, -math.inf, math.inf)
    square = student_quantile(level, count - 1) ** 2 / count
    half = square * unit / 2
    reach = half + math.sqrt(half**2 + square * float(differences.var(ddof=1)))
    return Interval(estimate, estimate - reach, estimate + reach)


def means_below(differences: NDArray[np.float64], null: float, unit: float = 0.0) -> float:
    """Return how probable so low a mean is where the true one is ``null``; see `means`."""
    count = len(differences)
    if count < LEAST_FOR_MEANS or not np.isfinite(differences).all():
        return 1.0
    distance = float(differences.mean()) - null
    variance = float(differences.var(ddof=1)) + unit * abs(distance)
    if variance == 0:
        return 0.0 if distance < 0 else 1.0
    return student(distance / math.sqrt(variance / count), count - 1)


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's procedure.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected, least = [1.0] * len(values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = least
    return corrected


def student(value: float, freedom: float) -> float:
    """Return the probability of a value of Student's distribution that is no larger."""
    square = value * value
    if square < 1:  # where the tail is no small number
        centre = regularised_beta(square / (freedom + square), 0.5, freedom / 2) / 2
        return 0.5 + math.copysign(centre, value)
    tail = regularised_beta(freedom / (freedom + square), freedom / 2, 0.5) / 2
    return tail if value < 0 else 1 - tail


def student_quantile(level: float, freedom: float) -> float:
    """Return the value that Student's distribution does not exceed with probability ``level``."""
    if level < 0.5:
        return -student_quantile(1 - level, freedom)
    reach = 2.0
    while student(reach, freedom) < level:
        reach *= 2
    return _last_true(lambda value: student(value, freedom) <= level, -reach, reach)


def regularised_beta(value: float, first: float, second: float) -> float:
    """Return the regularised incomplete beta function, by Lentz's continued fraction."""
    if not 0 < value < 1:
        return 0.0 if value <= 0 else 1.0
    if value > (first + 1) / (first + second + 2):
        return 1 - regularised_beta(1 - value, second, first)
    front = math.exp(
        math.lgamma(first + second)
        - math.lgamma(first)
        - math.lgamma(second)
        + first * math.log(value)
        + second * math.log1p(-value)
    )
    tiny = 1e-300
    fraction, upper, lower = 1.0, 1.0, 0.0
    for step in range(100_000):
        half = step // 2
        if step == 0:
            numerator = 1.0
        elif step % 2:
            numerator = -(first + half) * (first + second + half) * value
            numerator /= (first + 2 * half) * (first + 2 * half + 1)
        else:
            numerator = half * (second - half) * value
            numerator /= (first + 2 * half - 1) * (first + 2 * half)
        lower = 1 / (1 + numerator * lower or tiny)
        upper = 1 + numerator / upper or tiny
        fraction *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return front * (fraction - 1) / first


def _last_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return where a condition that holds at ``low`` ceases to, before ``high``."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _check_counts(some: int, others: int, total: int) -> None:
    if min(some, others, total) < 0 or some + others > total:
        raise EngramError(
            f"{shown(some)} and {shown(others)} are no counts among {shown(total)} examples."
        )
