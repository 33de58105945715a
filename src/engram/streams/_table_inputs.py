"""A table's columns as the numbers that a network reads, told by the first task alone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.data import Columns
from engram.errors import EngramError
from engram.streams._split import Numbers

_FURTHEST = 10  # deviations: a drifting column must not make the weights diverge
_MOST_CATEGORIES = 1_000
_LARGE, _SHIFT = 2.0**480, 600  # numbers whose squares' sum has no float, and binary places off

Floats = NDArray[np.float32]


class Inputs(NamedTuple):
    """The inputs of all rows, and what somebody should know of how they were made."""

    values: Floats  # [rows, features]
    checksum: str  # of the columns as the file has them
    missing: dict[str, int]  # numbers, by column
    strangers: dict[str, int]  # texts that the first task does not have, by column


def encode(columns: Columns, categories: Collection[str], first: Numbers) -> Inputs:
    """Return a table's inputs; ``first`` are the rows that the first task trains on.

    Numbers are less the mean of those rows, over their deviation, and cut at ten deviations; a
    missing one is the mean, and a column beside it says so. Of texts every one that those rows
    have is a column of 0 and 1, as is any other.
    """
    digest = hashlib.sha256()
    encoded = list[Floats]()
    missing, strangers = dict[str, int](), dict[str, int]()
    for name, texts in columns.items():
        numbers = None if name in categories else _numbers(name, texts)
        digest.update(f"{numbers is None}\x1e".encode() + "\x1f".join(texts).encode() + b"\x1e")
        if numbers is None:
            known = sorted({texts[row] for row in first.tolist()})
            strangers[name] = len(set(texts) - set(known))
            encoded.append(_one_hot(name, texts, known))
        else:
            missing[name] = int(np.isnan(numbers).sum())
            encoded.append(_standardised(numbers, first))
    return Inputs(np.concatenate(encoded, axis=1), digest.hexdigest(), missing, strangers)


def _numbers(name: str, texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Return a column of numbers, NaN where one is missing; None for a column of texts.

    A column is of numbers if most of what is there is: then whatever is not is a mistake.
    """
    values = {text: _number(text) for text in set(texts)}
    wrong = [text for text in texts if text and values[text] is None]
    if 2 * len(wrong) >= sum(map(bool, texts)):
        return None if wrong else np.full(len(texts), np.nan)
    if wrong:
        raise EngramError(
            f"Column {name!r} is of numbers, but data row {texts.index(wrong[0]) + 1} has "
            f"{wrong[0]!r}: correct it, or take the column for texts with "
            f"--set categories={name}."
        )
    return np.array([values[text] for text in texts], dtype=np.float64)  # None becomes NaN


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _standardised(numbers: NDArray[np.float64], first: Numbers) -> Floats:
    missing = np.isnan(numbers)
    known = numbers[first][~missing[first]]
    if np.abs(known).max(initial=0) > _LARGE:
        numbers, known = np.ldexp(numbers, -_SHIFT), np.ldexp(known, -_SHIFT)
    mean, deviation = (known.mean(), known.std()) if len(known) else (0.0, 1.0)
    if len(set(known.tolist())) == 1:  # whose mean may be rounded, and the deviation then not 0
        mean, deviation = known[0], 1.0
    with np.errstate(over="ignore"):  # what is too far away is cut
        scaled = (numbers - mean) / (deviation or 1.0)
    filled = np.where(missing, 0, scaled.clip(-_FURTHEST, _FURTHEST))
    columns = [filled, missing] if missing.any() else [filled]
    return np.stack(columns, axis=1).astype(np.float32)


def _one_hot(name: str, texts: Sequence[str], known: Sequence[str]) -> Floats:
    if len(known) > _MOST_CATEGORIES:
        raise EngramError(
            f"Column {name!r} has {len(known):,} different texts in the first task, more than "
            f"{_MOST_CATEGORIES:,}: leave it out with --set ignore={name}."
        )
    places = {text: place for place, text in enumerate(known)}
    chosen = [places.get(text, len(known)) for text in texts]
    return np.eye(len(known) + 1, dtype=np.float32)[chosen]
