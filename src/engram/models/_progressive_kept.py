"""What columns made of inputs that are asked for again and again."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_ROOM = 150_000_000  # bytes on a CPU, where many runs may go side by side


class _Kept(NamedTuple):
    inputs: Tensor
    places: Tensor | None
    states: list[Tensor]

    @property
    def nbytes(self) -> int:
        places = () if self.places is None else (self.places,)
        return sum(tensor.nbytes for tensor in (self.inputs, *places, *self.states))


class KeptStates:
    """What the layers of a network read, for some inputs, while there is room for it.

    Inputs are known again by their values, of which there are copies here: whatever becomes of
    the caller's, states are found for the inputs that they are of. Who comes first is kept, for
    inputs come again in turns: if the last pushed out the first, none would ever be found.
    """

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(kept.nbytes for kept in self._kept)

    def forget(self) -> None:
        """Keep nothing of what there was."""
        self._kept.clear()

    def find(self, inputs: Tensor, places: Tensor | None) -> list[Tensor] | None:
        """Return the states of these very inputs, at these places, or None."""
        for kept in self._kept:
            if _same(kept.places, places) and _same(kept.inputs, inputs):
                return kept.states
        return None

    def keep(self, inputs: Tensor, places: Tensor | None, states: list[Tensor]) -> None:
        """Keep the states, as they are, and copies of what they are of, if there is room."""
        new, held = _Kept(inputs, places, states), self.nbytes
        if held + new.nbytes <= _room(inputs.device, held):
            copied = None if places is None else places.clone()
            self._kept.append(new._replace(inputs=inputs.clone(), places=copied))


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and torch.equal(one, other)


def _room(device: torch.device, held: int) -> int:
    """Return how much may be held in all: on a GPU a quarter of what is left, or held already."""
    if device.type != "cuda":
        return _ROOM
    free, _ = torch.cuda.mem_get_info(device)
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (free + idle + held) // 4
