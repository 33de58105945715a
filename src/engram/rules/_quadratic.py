"""A small quadratic program over the numbers >= 0, in Gram form."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

_TOLERANCE = 1e-10  # of the slope, beside the largest one at 0


def minimise(matrix: Numbers, linear: Numbers) -> Numbers:
    """Return the x >= 0 that minimises ½ xᵀAx + bᵀx, for A positive (semi-)definite.

    An active-set method in the manner of fast non-negative least squares: the entries of x that are
    not held at 0 (the free ones) solve their equations; the entry with the steepest descent is
    set free, and entries that would turn negative are held at 0 again on the way.

    It ends: each round lowers the objective, so no set of free entries returns, and there are
    finitely many. Should rounding make one return, the number of rounds is bounded too, and the x
    reached so far, always feasible and finite, is the answer.
    """
    free, x = _first_guess(matrix, linear)
    tolerance = _TOLERANCE * np.abs(linear).max(initial=0.0)
    for _ in range(10 * len(linear)):
        slope = np.where(free, 0.0, matrix @ x + linear)
        steepest = slope.argmin()
        if slope[steepest] >= -tolerance:
            break
        free[steepest] = True
        x = _descend(matrix, linear, free, x)
    return x


def _first_guess(matrix: Numbers, linear: Numbers) -> tuple[Flags, Numbers]:
    """Return a set of free entries, with its solution >= 0: all that descend, less the negative."""
    free = linear < 0
    while True:
        solution = _solution(matrix, linear, free)
        negative = free & (solution < 0)
        if not negative.any():
            return free, solution
        free &= ~negative


def _descend(matrix: Numbers, linear: Numbers, free: Flags, x: Numbers) -> Numbers:
    """Return the solution of the free entries, or of those of them that stay >= 0 on the way."""
    while True:
        solution = _solution(matrix, linear, free)
        negative = free & (solution < 0)
        if not negative.any():
            return solution
        steps = np.full(len(x), np.inf)
        steps[negative] = x[negative] / (x[negative] - solution[negative])
        first = steps.argmin()
        x = np.maximum(x + steps[first] * (solution - x), 0)
        x[first] = 0
        free[first] = False


def _solution(matrix: Numbers, linear: Numbers, free: Flags) -> Numbers:
    """Return the minimiser over the free entries, the others held at 0."""
    x = np.zeros(len(linear))
    index = np.flatnonzero(free)
    equations = matrix[index[:, None], index]
    try:
        x[index] = np.linalg.solve(equations, -linear[index])
    except np.linalg.LinAlgError:  # exactly singular: of all solutions, the shortest
        x[index] = np.linalg.lstsq(equations, -linear[index], rcond=None)[0]
    return x
