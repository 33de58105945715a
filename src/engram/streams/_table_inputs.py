"""A table's columns as the numbers that a network reads, told by the first task alone."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.data import Columns
from engram.errors import EngramError
from engram.streams._split import Numbers

_FURTHEST = 10  # deviations: a drifting column must not make the weights diverge
_MOST_WIDTH = 2**16  # columns of 0 and 1, of all columns of texts
_MOST_BYTES = 2**31  # that they take for all rows
_NAMED = 3  # columns, where many have too many texts
_LARGE, _SHIFT = 2.0**480, 600  # numbers whose squares' sum has no float, and binary places off

Floats = NDArray[np.float32]


class Inputs(NamedTuple):
    """The inputs of all rows, and what somebody should know of how they were made."""

    values: Floats  # [rows, features]
    checksum: str  # of the columns as the file has them
    missing: dict[str, int]  # numbers, by column
    strangers: dict[str, int]  # texts that the first task does not have, by column
    rare: dict[str, int]  # texts that it has too many of to tell them apart, by column


def encode(
    columns: Columns, categories: Collection[str], first: Numbers, most_categories: int = 1_000
) -> Inputs:
    """Return a table's inputs; ``first`` are the rows that the first task trains on.

    Numbers are less the mean of those rows, over their deviation, and cut at ten deviations; a
    missing one is the mean, and a column beside it says so. Of texts every one that those rows
    have is a column of 0 and 1, or the ``most_categories`` most frequent of them, as is any other.
    Where that would be too many columns it is refused before they are made.
    """
    digest = hashlib.sha256()
    numbers = dict[str, NDArray[np.float64]]()
    known = dict[str, list[str]]()  # the texts of the first task, the most frequent first
    for name, texts in columns.items():
        found = None if name in categories else _numbers(name, texts)
        digest.update(f"{found is None}\x1e".encode() + "\x1f".join(texts).encode() + b"\x1e")
        if found is not None:
            numbers[name] = found
            continue
        counts = Counter(texts[row] for row in first.tolist())
        known[name] = sorted(counts, key=lambda text: (-counts[text], text))
        if len(counts) > most_categories:  # then other inputs are made of the same texts
            digest.update(f"{most_categories}\x1e".encode())
    rows = len(next(iter(columns.values())))
    _check_width(known, rows, most_categories)
    parts = [
        _standardised(numbers[name], first)
        if name in numbers
        else _places(texts, sorted(known[name][:most_categories]))
        for name, texts in columns.items()
    ]
    return Inputs(
        _joined(parts, rows),
        digest.hexdigest(),
        missing={name: int(np.isnan(values).sum()) for name, values in numbers.items()},
        strangers={name: len(set(columns[name]) - set(texts)) for name, texts in known.items()},
        rare={name: max(len(texts) - most_categories, 0) for name, texts in known.items()},
    )


def _check_width(known: Mapping[str, Sequence[str]], rows: int, most_categories: int) -> None:
    """Refuse more columns of 0 and 1 than a network, or the memory, has room for."""
    counts = {name: len(texts) for name, texts in known.items()}

    def width(most: int) -> int:
        return sum(min(count, most) + 1 for count in counts.values())

    room = min(_MOST_WIDTH, _MOST_BYTES // (4 * rows))
    if width(most_categories) <= room:
        return
    fewer = next((most for most in (500, 200, 100, 50, 20, 10, 5, 2, 1) if width(most) <= room), 0)
    remedy = f"take fewer with --set most_categories={fewer}, or " if fewer else ""
    largest = sorted(counts, key=lambda name: -counts[name])[:_NAMED]
    told = ", ".join(f"{name!r} with {counts[name]:,}" for name in largest)
    raise EngramError(
        f"The texts would become {width(most_categories):,} columns of 0 and 1, of which {rows:,} "
        f"rows have room for {room:,}: {remedy}leave columns out with --set ignore=…, first of all "
        f"{told}."
    )


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


class _Places(NamedTuple):
    """Which of ``width`` columns of 0 and 1 is 1, row by row."""

    chosen: NDArray[np.int64]
    width: int


def _places(texts: Sequence[str], known: Sequence[str]) -> _Places:
    places = {text: place for place, text in enumerate(known)}
    chosen = np.array([places.get(text, len(known)) for text in texts], dtype=np.int64)
    return _Places(chosen, len(known) + 1)


def _joined(parts: Sequence[Floats | _Places], rows: int) -> Floats:
    """Return all columns side by side; those of 0 and 1 are made nowhere else."""
    widths = [part.width if isinstance(part, _Places) else part.shape[1] for part in parts]
    joined = np.zeros((rows, sum(widths)), dtype=np.float32)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        if isinstance(part, _Places):
            joined[np.arange(rows), start + part.chosen] = 1
        else:
            joined[:, start : start + width] = part
        start += width
    return joined
