"""Whether two things are the same, and what is raised where they ought to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def require(condition: bool, sentence: str) -> None:
    """Raise an AssertionError unless the condition holds (``assert`` can be switched off)."""
    if not condition:
        raise AssertionError(sentence)


def close(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Whether all are the same up to rounding, though some of it may be in float32."""
    return all(
        torch.allclose(one, other, rtol=1e-3, atol=1e-4)
        for one, other in zip(ours, theirs, strict=True)
    )


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401 (a nested structure)
    """Whether two states are the same to the last bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


def can_be_saved(state: Any) -> bool:  # noqa: ANN401
    """Whether a state is made of tensors, arrays and what JSON can hold."""
    if isinstance(state, dict):
        return all(isinstance(key, str) and can_be_saved(value) for key, value in state.items())
    if isinstance(state, list | tuple):
        return all(map(can_be_saved, state))
    return isinstance(state, Tensor | np.ndarray | int | float | str | None)
