"""Every random choice of a run, from counter-based draws.

A draw depends on the run's seed, on what it is for and on its position, and on nothing else: not
on what was drawn before, on the device, or on the runs beside it. So a run is the same alone,
stacked or resumed, and a checkpoint stores a position, not a generator.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 512  # keeps the table of a shuffle in the processor's cache


def generator(seed: int, purpose: str, *position: int) -> np.random.Generator:
    """Return the generator of one choice, for example ``generator(3, "order", task)``."""
    spawn_key = (zlib.crc32(purpose.encode()), *position)
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence(entropy=seed, spawn_key=spawn_key))
    )


def subsets(
    source: np.random.Generator, rows: int, count: int, size: int
) -> NDArray[np.int64]:  # [rows, count]
    """Draw ``rows`` independent subsets of ``count`` out of ``size``, without replacement.

    The first ``count`` steps of a Fisher-Yates shuffle, for many rows at once; everything, in
    order, where ``size`` is at most ``count``.
    """
    if size <= count:
        return np.tile(np.arange(size), (rows, 1))
    left = np.arange(size, size - count, -1)
    jumps = (source.random((rows, count)) * left).astype(np.int64)
    drawn = np.empty((rows, count), dtype=np.int64)
    for start in range(0, rows, _ROWS_AT_ONCE):
        part = jumps[start : start + _ROWS_AT_ONCE]
        table = np.tile(np.arange(size, dtype=np.int32), len(part))  # one row behind the other
        places = np.arange(count)[:, np.newaxis] + part.T + size * np.arange(len(part))
        chosen = np.empty(places.shape, dtype=np.int32)
        for place, there in enumerate(places):
            chosen[place] = table[there]
            table[there] = table[place::size]
        drawn[start : start + len(part)] = chosen.T
    return drawn
