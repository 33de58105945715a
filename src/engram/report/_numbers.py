"""Numbers as tables print them."""

from __future__ import annotations

from engram.paper import Printed
from engram.report._measures import Statistic

NOTHING = "–"


def spread(number: Statistic | Printed | None, digits: int) -> str:
    """Return mean ± std, or the value alone where nothing is known of the spread.

    >>> spread(Statistic(91.2049, 0.0951, (91.1, 91.3)), 2), spread(None, 2)
    ('91.20 ± 0.10', '–')
    >>> spread(Statistic.over([91.2049]), 2)
    '91.20'
    """
    if number is None:
        return NOTHING
    mean = f"{number.mean:.{digits}f}"
    return mean if number.std is None else f"{mean} ± {number.std:.{digits}f}"


def difference(ours: Statistic | None, paper: Printed | None, digits: int) -> str:
    """Return ours minus the paper's, with its sign.

    >>> difference(Statistic(91.5, 0.1, ()), Printed(91.21, 0.1), 2)
    '+0.29'
    """
    if ours is None or paper is None:
        return NOTHING
    return f"{ours.mean - paper.mean:+.{digits}f}"


def deviations(ours: Statistic | None, paper: Printed | None) -> str:
    """Return ours minus the paper's in the paper's standard deviations.

    >>> deviations(Statistic(91.3, 0.1, ()), Printed(91.2, 0.05))
    '+2.0'
    """
    if ours is None or paper is None or not paper.std:
        return NOTHING
    return f"{(ours.mean - paper.mean) / paper.std:+.1f}"


def is_far(ours: Statistic | None, paper: Printed | None, far: float) -> bool:
    """Say whether ours is more than so many of the paper's standard deviations away."""
    if ours is None or paper is None or not paper.std:
        return False
    return abs(ours.mean - paper.mean) > far * paper.std


def duration(seconds: float) -> str:
    """Return seconds, with a digit after the point only where it says something.

    >>> duration(3.14159), duration(1234.5)
    ('3.1', '1,234')
    """
    return f"{seconds:,.1f}" if seconds < 100 else f"{seconds:,.0f}"
