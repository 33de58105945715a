"""A mean over seeds and how sure it is: Student's t."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_TINY = 1e-300
_DOUBT = 0.05  # an interval misses the mean of all seeds this often


@dataclass(frozen=True)
class Estimate:
    """The mean over seeds and its 95 % interval.

    low, high = mean -+ q s / sqrt(n), s the sample standard deviation and q the quantile of
    Student's t with n - 1 degrees of freedom. With one seed nothing is known of the spread: the
    interval is everything.
    """

    mean: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, mean: float, std: float, seeds: int) -> Estimate:
        """Return the estimate from the mean and the sample standard deviation of some seeds."""
        if seeds == 1:
            return cls(mean, -math.inf, math.inf, seeds)
        half = _quantile(seeds - 1) * std / math.sqrt(seeds)
        return cls(mean, mean - half, mean + half, seeds)

    @classmethod
    def over(cls, values: Sequence[float]) -> Estimate:
        """Return the estimate from one value for each seed, of which there is at least one.

        >>> estimate = Estimate.over([1.0, 2.0, 3.0])
        >>> round(estimate.low, 3), estimate.mean, round(estimate.high, 3)
        (-0.484, 2.0, 4.484)
        """
        std = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls.of(statistics.fmean(values), std, len(values))

    def chance(self, bound: float) -> float:
        """Return the two-sided p of ``bound`` as the mean of all seeds: below 5 % if it is outside.

        >>> estimate = Estimate.over([1.0, 2.0, 3.0])
        >>> round(estimate.chance(0.0), 4), round(estimate.chance(estimate.high), 4)
        (0.0742, 0.05)
        """
        if self.seeds == 1 or self.mean == bound:
            return 1.0
        error = (self.high - self.mean) / _quantile(self.seeds - 1)
        return two_sided_p((self.mean - bound) / error, self.seeds - 1) if error > 0 else 0.0


def holm(chances: Sequence[float]) -> list[bool]:
    """Say which of some tests are still significant at 5 % for all of them together.

    Holm's method: the smallest of m p-values is compared with 5 % / m, the next one with
    5 % / (m - 1), and so on, up to the first that is larger.

    >>> holm([0.04, 0.001, 0.02])
    [True, True, True]
    >>> holm([0.04, 0.001, 0.03])
    [False, True, False]
    """
    kept = [False] * len(chances)
    for rank, place in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if chances[place] > _DOUBT / (len(chances) - rank):
            break
        kept[place] = True
    return kept


def two_sided_p(t: float, degrees: int) -> float:
    """Return the chance of a t statistic at least this far from 0.

    p = I_x(degrees / 2, 1 / 2) with x = degrees / (degrees + t^2), I the regularised incomplete
    beta function.

    >>> round(two_sided_p(2.262157, 9), 6)
    0.05
    """
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges quickly on the other side
        return 1 - _incomplete_beta(b, a, 1 - x)
    logarithm = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(logarithm) * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Evaluate 1 / (1 + d_1 / (1 + d_2 / (1 + ...))) by Lentz's method."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


@functools.cache
def _quantile(degrees: int) -> float:
    """Return q with P(|t| > q) = 5 %, by bisection: the chance falls as q grows."""
    low, high = 0.0, 13.0  # with one degree of freedom it is 12.7, and less with more
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, degrees) > _DOUBT else (low, middle)
    return high
