"""What goes in and out of the slots: examples at the door, and rows that change their place."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from engram.memory._example import Id, Tags
from engram.memory._table import Indices

Newcomer: TypeAlias = tuple[int, Id, int, int, Tags | None, float]
"""An example at the door: its place in the batch, id, task, label, tags and chance.

The chance is a uniform draw from [0, 1).
"""


class Moves(NamedTuple):
    """Rows that change their slot, for a storage to follow.

    Read the rows ``source``, write them to ``target``, then clear the rows from ``length`` (what
    is held now) to ``previous`` (what was held before).

    >>> import numpy as np
    >>> Moves(source=np.array([9]), target=np.array([4]), length=9, previous=10).length
    9
    """

    source: Indices
    target: Indices
    length: int
    previous: int
