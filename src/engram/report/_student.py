"""Student's t distribution, as far as a paired comparison needs it."""

from __future__ import annotations

import math

_TINY = 1e-300


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
