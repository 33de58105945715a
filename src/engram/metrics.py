"""The paper's three metrics, as pure functions of one accuracy array.

Accuracies are fractions. ``matrix[..., k, j]`` is the accuracy on task j after task k has been
learned, NaN where task j has not been seen by then. ``curve[..., k, b]`` is the accuracy on
task k after b of its mini-batches, b = 0 being before the first. Leading dimensions (seeds, say)
are kept.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram.errors import EngramError, shown, unknown

__all__ = ["average_accuracy", "average_accuracy_over_tasks", "forgetting", "learning_curve_area"]

Array = NDArray[np.float64]

_AREAS = ("trapezoid", "mean")
_ROUNDING = 1e-6  # by which a mean of hits and misses may be off


def average_accuracy(matrix: ArrayLike) -> Array:
    """Return A_T, the mean accuracy over all T tasks after the last one.

    >>> float(average_accuracy([[0.9, float("nan")], [0.7, 0.8]]))
    0.75
    """
    return np.asarray(_square(matrix)[..., -1, :].mean(-1))


def average_accuracy_over_tasks(matrix: ArrayLike) -> Array:
    """Return A_k for every k: the mean over tasks 1..k after task k, [..., T].

    >>> average_accuracy_over_tasks([[0.9, float("nan")], [0.7, 0.8]]).tolist()
    [0.9, 0.75]
    """
    accuracy = _square(matrix)
    tasks = accuracy.shape[-1]
    seen = np.tril(np.ones((tasks, tasks), dtype=bool))
    return np.asarray(np.where(seen, accuracy, 0.0).sum(-1) / np.arange(1, tasks + 1))


def forgetting(matrix: ArrayLike) -> Array:
    """Return F_T, the mean over the earlier tasks of best accuracy so far minus final accuracy.

    F_T = 1/(T-1) sum_{j<T} ( max_{l<T} a[l, j] - a[T, j] ). It can be negative. With one task, or
    with one that was measured at the end alone, it is not defined: NaN.

    >>> round(float(forgetting([[0.9, float("nan")], [0.7, 0.8]])), 12)
    0.2
    """
    accuracy = _square(matrix)
    if accuracy.shape[-1] == 1:
        return np.full(accuracy.shape[:-2], np.nan)
    unseen = np.where(np.isnan(accuracy), -np.inf, accuracy)
    best = unseen[..., :-1, :-1].max(-2)
    best = np.where(np.isinf(best), np.nan, best)
    return np.asarray((best - accuracy[..., -1, :-1]).mean(-1))


def learning_curve_area(
    curve: ArrayLike, rule: Literal["trapezoid", "mean"] = "trapezoid", batches: int = 10
) -> Array:
    """Return LCA over the first ``batches`` mini-batches, from Z_b = mean over tasks of curve.

    ``"trapezoid"`` is what the authors' tables hold, (Z_0/2 + Z_1 + ... + Z_10/2) / 10;
    ``"mean"`` is the paper's formula, (Z_0 + ... + Z_10) / 11. Where the tasks are shorter than
    that it is not defined: NaN.

    >>> line = [[0.0, 0.25, 0.5]]
    >>> float(learning_curve_area(line, batches=2)), float(learning_curve_area(line, "mean", 2))
    (0.25, 0.25)
    """
    if not isinstance(rule, str) or rule not in _AREAS:
        raise unknown("area rule", str(rule), _AREAS)
    if not isinstance(batches, int | np.integer):
        raise EngramError(f"batches must be a whole number, not {shown(batches)}.")
    if batches < 1:
        raise EngramError(f"batches must be at least 1, not {batches}.")
    accuracy = _fractions("curve", curve)
    if accuracy.ndim < 2 or accuracy.shape[-2] == 0:
        raise EngramError(f"curve must have the shape [..., tasks, batches], not {accuracy.shape}.")
    if accuracy.shape[-1] <= batches:
        return np.full(accuracy.shape[:-2], np.nan)
    z = accuracy.mean(-2)[..., : batches + 1]
    if rule == "mean":
        return np.asarray(z.mean(-1))
    return np.asarray((z.sum(-1) - (z[..., 0] + z[..., -1]) / 2) / batches)


def _square(matrix: ArrayLike) -> Array:
    accuracy = _fractions("matrix", matrix)
    if accuracy.ndim < 2 or accuracy.shape[-1] != accuracy.shape[-2] or accuracy.size == 0:
        raise EngramError(f"matrix must have the shape [..., tasks, tasks], not {accuracy.shape}.")
    return accuracy


def _fractions(field: str, values: ArrayLike) -> Array:
    """Return accuracies as an array, or refuse what are none; None counts as NaN."""
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":  # nor texts that look like numbers
            raise TypeError
        accuracy = given.astype(np.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # a tensor raises its own
        raise EngramError(f"{field} must be an array of numbers, not {shown(values)}.") from None
    if (np.abs(accuracy - 0.5) > 0.5 + _ROUNDING).any():
        raise EngramError(f"{field} must hold fractions from 0 to 1, or NaN, and one is neither.")
    return accuracy
