"""Whether the newest task contradicts the older ones: the same inputs, with other answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.lab.benchmarks.split import Numbers, Part
from engram.lab.plan import generator

_FEWEST = 30  # test rows that are to be compared
_MOST = 1_000  # rows of each kind that are looked at
_MOST_FEATURES = 1_024
_AS_NEAR = 1.5  # times the distance of the nearest row of its own task


def contradiction(train: NDArray[Any], test: NDArray[Any], parts: Sequence[Part]) -> float | None:
    """Return by how many points older answers are wrong for the newest task's rows, at least.

    A test row of the newest task asks its nearest training row of that task, and its nearest one
    of all older tasks, drawn equally many of both. It counts if the older is as near as the other,
    up to a factor of 1.5, and only classes that both sides have count: a new class, or an input
    unlike any before, contradicts nothing. What is returned is the share that the newest rows
    answer rightly less the share that the older ones do, in percent, less two standard errors, and
    not below 0. None where fewer than 30 rows can be compared.

    It is a property of the data, the same for every method. Where nothing has changed both are
    right equally often, however hard the task is.
    """
    *before, newest = parts
    if not before:
        return None
    old = np.concatenate([part.train for part in before])
    old_labels = np.concatenate([part.train_labels for part in before])
    shared = np.intersect1d(old_labels, newest.train_labels)
    if len(shared) < 2:
        return None
    source = generator(0, "contradiction")
    mine = _among(shared, newest.train, newest.train_labels)
    others = _among(shared, old, old_labels)
    asked = _among(shared, newest.test, newest.test_labels)
    count = min(len(mine[0]), len(others[0]), _MOST)
    (rows, labels), (old_rows, old_answers), (test_rows, right) = (
        _drawn(source, some, most)
        for some, most in ((mine, count), (others, count), (asked, _MOST))
    )
    inputs = _scaled(train[rows], train[rows])
    places, distance = _nearest(_scaled(test[test_rows], train[rows]), inputs)
    old_places, old_distance = _nearest(
        _scaled(test[test_rows], train[rows]), _scaled(train[old_rows], train[rows])
    )
    near = old_distance <= _AS_NEAR * distance
    if near.sum() < _FEWEST:
        return None
    new_right = labels[places][near] == right[near]
    old_right = old_answers[old_places][near] == right[near]
    gain = new_right.astype(np.float64) - old_right
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return max(0.0, 100 * float(gain.mean() - 2 * error))


def _among(classes: Numbers, rows: Numbers, labels: Numbers) -> tuple[Numbers, Numbers]:
    inside = np.isin(labels, classes)
    return rows[inside], labels[inside]


def _drawn(
    source: np.random.Generator, some: tuple[Numbers, Numbers], most: int
) -> tuple[Numbers, Numbers]:
    chosen = source.permutation(len(some[0]))[:most]
    return some[0][chosen], some[1][chosen]


def _scaled(rows: NDArray[Any], like: NDArray[Any]) -> NDArray[np.float64]:
    """Return rows as flat vectors, each feature over its deviation in others like them."""
    flat, usual = (part.reshape(len(part), -1) for part in (rows, like))
    step = -(-flat.shape[1] // _MOST_FEATURES)
    deviation = usual[:, ::step].astype(np.float64).std(0)
    found: NDArray[np.float64] = flat[:, ::step] / np.where(deviation > 0, deviation, 1.0)
    return found


def _nearest(
    asking: NDArray[np.float64], rows: NDArray[np.float64]
) -> tuple[Numbers, NDArray[np.float64]]:
    """Return the place of each one's nearest row, and how far it is."""
    squares = (rows**2).sum(1) - 2 * asking @ rows.T + (asking**2).sum(1)[:, np.newaxis]
    places = squares.argmin(1)
    # Of rows that are equal the formula may leave less than nothing.
    return places, np.sqrt(np.maximum(squares[np.arange(len(asking)), places], 0))
