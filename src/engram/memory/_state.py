"""Nested states between arrays, which a ledger speaks, and tensors, which files and torch speak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

State: TypeAlias = dict[str, Any]


def to_tensors(state: State) -> State:
    """Return the state with a tensor for every array."""
    return _map(
        state, lambda leaf: torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    )


def to_arrays(state: State) -> State:
    """Return the state with an array for every tensor."""
    return _map(state, lambda leaf: leaf.cpu().numpy() if isinstance(leaf, Tensor) else leaf)


def _map(state: State, convert: Callable[[Any], Any]) -> State:
    return {
        name: _map(value, convert) if isinstance(value, dict) else convert(value)
        for name, value in state.items()
    }
