"""Slots as a tensor, for a storage to write to."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor


class Places:
    """A tensor of a few numbers, made once and filled again while they stay as many.

    Between two training steps everything has left the processor's caches, and making a tensor
    takes several times as long as filling one.
    """

    def __init__(self) -> None:
        # Together, so that an interruption never leaves one without the other.
        self._held = array("q"), torch.empty(0, dtype=torch.int64, device="cpu")

    def fill(self, slots: list[int]) -> Tensor:
        """Return the slots as a tensor of the host, which the next call may fill again."""
        new = array("q", slots)
        numbers, tensor = self._held
        if len(numbers) == len(new):
            numbers[:] = new
        else:  # nothing else makes a tensor of a few numbers as fast
            tensor = torch.frombuffer(new, dtype=torch.int64)
            self._held = new, tensor
        return tensor

    def __reduce__(self) -> tuple[type[Places], tuple[()]]:
        """Make a copy anew: copied by itself, a tensor would no longer be of its numbers."""
        return Places, ()
