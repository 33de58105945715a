"""A task's plan on the device: which rows of the table its steps read and write."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import torch
from torch import Tensor

from engram.engine._reads import Reads, Slots


class Planned:
    """Reads and writes of every step of a task, as rows of the table that all runs share.

    ``stride`` rows of the table belong to each run; the last of them takes what nobody keeps.
    ``position``, where it is set, is the number of the step in hand on the device ([1]): steps
    that are captured once and replayed find their place by it.
    """

    position: Tensor | None = None

    def __init__(
        self,
        reads: Reads | None,
        writes: Slots,  # [R, N]
        batch_size: int,
        stride: int,
        device: torch.device,
    ) -> None:
        self._reads = reads
        if reads is not None:
            self._reads = reads._replace(slots=np.empty(0, np.int64))  # not held twice
            self._slots = _rows(reads.slots, stride, device)
            weights = reads.weights
            self._weights = None if weights is None else torch.from_numpy(weights).to(device)
        steps = -(-writes.shape[1] // batch_size)
        padded = np.full((len(writes), steps * batch_size), -1)
        padded[:, : writes.shape[1]] = writes
        padded = padded.reshape(len(writes), steps, batch_size)
        self._keeps = np.any(padded >= 0, axis=(0, 2))
        self._writes = _rows(np.where(padded < 0, stride - 1, padded), stride, device)

    def kind(self, step: int) -> Hashable:
        """Return what tells steps apart that do more than other data."""
        return self._reads is not None and self._reads.anything(step)

    def reads(self, step: int) -> tuple[Tensor, Tensor | None, int] | None:
        """Return the reference batch's rows and weights, [R, B], and its number of groups."""
        if self._reads is None or not self._reads.anything(step):
            return None
        weights = None if self._weights is None else self._at(self._weights, step)
        return self._at(self._slots, step), weights, self._reads.groups

    def writes(self, step: int) -> Tensor | None:
        """Return the rows that a step's examples are written to, or None if none is kept.

        Steps that are found by ``position`` always write: what nobody keeps goes to a row that
        nobody reads, which costs less than a second kind of step to record.
        """
        if self.position is None and not self._keeps[step]:
            return None
        return self._at(self._writes, step)

    def _at(self, planned: Tensor, step: int) -> Tensor:
        if planned.shape[1] == 1:
            return planned[:, 0]
        if self.position is None:
            return planned[:, step]
        return planned.index_select(1, self.position).squeeze(1)


def _rows(slots: Slots | Tensor, stride: int, device: torch.device) -> Tensor:
    """Turn the slots [R, ...] of each run into rows of the common table."""
    first = stride * torch.arange(len(slots), device=device)
    return torch.as_tensor(slots, device=device) + first.view(-1, *[1] * (slots.ndim - 1))
