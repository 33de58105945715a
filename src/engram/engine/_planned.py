"""A task's plan on the device: which rows of the table its steps read, and which of them stay."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import torch
from torch import Tensor

from engram.engine._kept import Slots, holders
from engram.engine._reads import Reads


class Planned:
    """What every step of a task reads, as rows of the table that all runs share.

    Of each run's ``length`` rows the first ``capacity`` are its slots, and the task's examples lie
    behind. ``moves`` are the rows whose examples change when the task has ended, and those of the
    new ones. ``position``, where it is set, is the number of the step in hand on the device ([1]):
    steps that are captured once and replayed find their place by it.
    """

    position: Tensor | None = None

    def __init__(
        self,
        reads: Reads | None,
        kept: Slots,  # [R, N]: the slot that an example goes to, or -1
        capacity: int,
        device: torch.device,
    ) -> None:
        self._reads = reads
        self.length = stride = capacity + kept.shape[1]
        if reads is not None:
            self._reads = reads._replace(slots=np.empty(0, np.int64))  # not held twice
            self._slots = _rows(reads.slots, stride, device)
            weights = reads.weights
            self._weights = None if weights is None else torch.from_numpy(weights).to(device)
        held = holders(kept, capacity)
        runs, slots = np.nonzero(held >= capacity)
        first = stride * runs
        self.moves = tuple(
            torch.from_numpy(first + rows).to(device) for rows in (slots, held[runs, slots])
        )

    def kind(self, step: int) -> Hashable:
        """Return what tells steps apart that do more than other data."""
        return self._reads is not None and self._reads.anything(step)

    def reads(self, step: int) -> tuple[Tensor, Tensor | None, int] | None:
        """Return the reference batch's rows and weights, [R, B], and its number of groups."""
        if self._reads is None or not self._reads.anything(step):
            return None
        weights = None if self._weights is None else self._at(self._weights, step)
        return self._at(self._slots, step), weights, self._reads.groups

    def _at(self, planned: Tensor, step: int) -> Tensor:
        if planned.shape[1] == 1:
            return planned[:, 0]
        if self.position is None:
            return planned[:, step]
        return planned.index_select(1, self.position).squeeze(1)


def _rows(slots: Slots | Tensor, stride: int, device: torch.device) -> Tensor:
    """Turn the rows [R, ...] of each run into rows of the common table."""
    first = stride * torch.arange(len(slots), device=device)
    return torch.as_tensor(slots, device=device) + first.view(-1, *[1] * (slots.ndim - 1))
