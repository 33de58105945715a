"""When examples are too old to stay: by their task's number, or by their time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.errors import EngramError, shown, unknown
from engram.memory.examples import NONE, Metadata
from engram.memory.slots import SlotTable


class Age(NamedTuple):
    """How old an example may become: the newest task or time that has come, less its own."""

    most: float
    by: str
    """``"task"`` or ``"time"``."""

    def check(self, batch: Metadata) -> None:
        """Refuse a batch whose examples have no age."""
        lacking = batch.tasks[0] == NONE if self.by == "task" else "times" not in batch.measures
        if lacking:
            raise EngramError(
                f"The memory lets examples go by their {self.by}; give {self.by}s with each batch."
            )

    def of_batch(self, batch: Metadata) -> Sequence[float]:
        """Return the task or time of each example of a batch."""
        return batch.tasks if self.by == "task" else batch.measures["times"]

    def of_slots(self, slots: SlotTable) -> NDArray[Any]:
        """Return the task or time of each example held."""
        if self.by == "task":
            return slots.tasks
        times = slots.measure("times")
        return np.empty(0) if times is None else times

    def too_old(self, held: NDArray[Any], newest: float) -> NDArray[np.bool_]:
        """Return which are too old where this is the newest; one without a time never is."""
        oldest = newest - self.most
        if held.dtype == np.int64 and oldest <= NONE:  # which no array can be compared with
            return np.zeros(len(held), bool)
        return held < oldest


def checked_age(max_age: object, age_by: object) -> Age | None:
    """Return what a user asked for, or refuse it."""
    if age_by not in ("task", "time") or not isinstance(age_by, str):
        raise unknown("way to count ages", age_by, ["task", "time"])
    if max_age is None:
        return None
    number = isinstance(max_age, int | float) and not isinstance(max_age, bool)
    whole = "whole " if age_by == "task" else ""
    if (
        not number
        or not 0 <= max_age < 2**63  # type: ignore[operator]
        or not math.isfinite(max_age)  # type: ignore[arg-type]
        or (whole and not isinstance(max_age, int))
    ):
        raise EngramError(f"max_age is {shown(max_age)}; it must be a {whole}number of at least 0.")
    return Age(max_age, age_by)  # type: ignore[arg-type]
