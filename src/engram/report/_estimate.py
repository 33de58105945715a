"""A mean over seeds and how sure it is."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engram.report._student import two_sided_p

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


@functools.cache
def _quantile(degrees: int) -> float:
    """Return q with P(|t| > q) = 5 %, by bisection: the chance falls as q grows."""
    low, high = 0.0, 13.0  # with one degree of freedom it is 12.7, and less with more
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, degrees) > _DOUBT else (low, middle)
    return high
