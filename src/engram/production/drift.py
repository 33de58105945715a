"""What changed between the past and new data: two-sample tests, corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.lab.targets import Classes
from engram.production import intervals
from engram.production.intervals import Interval
from engram.production.preprocessing import TARGET, Preprocessing, Rows, TableInputs

Pair: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numbers of the past, and new ones."""

_LEVEL = 0.05
_LEAST = 5.0  # examples of a category that are expected: the rarer ones count as one
_SURE = 0.9
_MOST_COLUMNS = 100  # of tensors that are tested


class Drift(NamedTuple):
    """One column: how far the past and the new data are apart."""

    column: str
    test: str
    statistic: float
    chance: float  # corrected p-value
    drifted: bool


def kolmogorov_smirnov(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """Return the largest distance between two distributions, and its asymptotic p-value.

    >>> kolmogorov_smirnov(np.arange(100.0), np.arange(100.0))
    (0.0, 1.0)
    """
    if not len(one) or not len(other):
        return 0.0, 1.0
    every = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(each), every, "right") / len(each) for each in (one, other)]
    distance = float(np.abs(shares[0] - shares[1]).max())
    scaled = distance * math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    if scaled < 0.2:  # where the series is 1 to twelve digits
        return distance, 1.0
    terms = [(-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101)]
    return distance, min(max(2 * sum(terms), 0.0), 1.0)


def chi_square(one: Sequence[str], other: Sequence[str]) -> tuple[float, float]:
    """Return Pearson's statistic of whether two samples have the same shares, and its p-value.

    Categories of which fewer than 5 are expected in the smaller sample count as one.
    """
    if not one or not other:
        return 0.0, 1.0
    names = sorted({*one, *other})
    places = {name: place for place, name in enumerate(names)}
    table = np.zeros((2, len(names)))
    for row, sample in enumerate((one, other)):
        np.add.at(table[row], [places[each] for each in sample], 1)
    smaller = min(len(one), len(other)) / (len(one) + len(other))
    rare = table.sum(0) * smaller < _LEAST
    if rare.any():
        table = np.concatenate([table[:, ~rare], table[:, rare].sum(1, keepdims=True)], 1)
    freedom = table.shape[1] - 1
    if freedom < 1:
        return 0.0, 1.0
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    statistic = float((np.square(table - expected) / expected).sum())
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return statistic, float(torch.special.gammaincc(half[0], half[1]))


def drifts(
    numbers: dict[str, Pair],
    texts: dict[str, tuple[Sequence[str], Sequence[str]]],
) -> list[Drift]:
    """Test every column, past against new; p-values are corrected by Holm's procedure."""
    found = [
        *(
            (name, "Kolmogorov-Smirnov", *kolmogorov_smirnov(*pair))
            for name, pair in numbers.items()
        ),
        *((name, "chi-square", *chi_square(*pair)) for name, pair in texts.items()),
    ]
    corrected = intervals.holm([chance for *_, chance in found])
    return [
        Drift(name, test, statistic, chance, chance <= _LEVEL)
        for (name, test, statistic, _), chance in zip(found, corrected, strict=True)
    ]


def compared(
    preprocessing: Preprocessing, past: Rows, new: Rows, confidence: Pair | None
) -> list[Drift]:
    """Test all columns of stored rows, past against new, and how sure the parent is of each."""
    numbers: dict[str, Pair] = {}
    texts: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    inputs = preprocessing.inputs
    if isinstance(inputs, TableInputs):
        for place, number in enumerate(inputs.numbers):
            numbers[number.name] = _there(past, place), _there(new, place)
        for place, column in enumerate(inputs.categories):
            texts[column.name] = _as_texts(past["codes"], place), _as_texts(new["codes"], place)
    else:
        one, other = (_summaries(each["inputs"], inputs.kind) for each in (past, new))
        numbers |= {name: (one[name], other[name]) for name in one}
    if isinstance(preprocessing.target, Classes):
        texts["target"] = _as_texts(past[TARGET]), _as_texts(new[TARGET])
    if confidence is not None:
        numbers["(confidence of the parent)"] = confidence
    return drifts(numbers, texts)


def _there(rows: Rows, place: int) -> NDArray[np.float64]:
    """Return the numbers of a column, less those that are missing."""
    found: NDArray[np.float64] = rows["numbers"][~rows["missing"][:, place], place].numpy()
    return found


def _as_texts(codes: Tensor, place: int | None = None) -> list[str]:
    return [str(code) for code in (codes if place is None else codes[:, place]).tolist()]


def _summaries(inputs: Tensor, kind: str) -> dict[str, NDArray[np.float64]]:
    """Return a few numbers of each example, whose distributions are compared."""
    if kind == "images":
        means = inputs.double().mean((2, 3)).numpy()
        return {name: means[:, place] for place, name in enumerate(("red", "green", "blue"))}
    if kind == "text":
        return {"length": (inputs > 0).sum(1).double().numpy()}
    flat = inputs.double().flatten(1)
    if flat.shape[1] > _MOST_COLUMNS:
        return {"mean": flat.mean(1).numpy(), "deviation": flat.std(1).numpy()}
    return {str(place): flat[:, place].numpy() for place in range(flat.shape[1])}


class Contradiction(NamedTuple):
    """How often labels agree with a model where it is sure: of the past, and of new data."""

    past_right: int
    past: int
    new_right: int
    new: int

    def loss(self, level: float) -> Interval:
        """Return by how much less new labels agree, with Newcombe's bounds."""
        return intervals.independent_shares(
            (self.past_right, self.past), (self.new_right, self.new), level
        )


def contradiction(
    past_sure: NDArray[np.float64],
    past_right: NDArray[np.bool_],
    new_sure: NDArray[np.float64],
    new_right: NDArray[np.bool_],
) -> Contradiction | None:
    """Count how often a model is right where it is at least 90 % sure; None where it never is.

    That inputs have moved makes a model unsure; that labels have makes it sure and wrong.
    """
    past, new = past_sure >= _SURE, new_sure >= _SURE
    if not past.any() or not new.any():
        return None
    return Contradiction(
        int(past_right[past].sum()), int(past.sum()), int(new_right[new].sum()), int(new.sum())
    )
