"""Somebody's tensors or arrays, checked, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, shown

Pair = tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]]
Arrays = tuple[NDArray[Any], NDArray[Any]]  # inputs, 8-bit or float32, and labels


def own_arrays(name: str, pairs: Sequence[Pair]) -> list[Arrays]:
    """Return the inputs and labels of each task; EngramError says what is wrong with one."""
    if not isinstance(pairs, Sequence) or not pairs:
        raise EngramError(f"{name} must be a list of pairs (inputs, labels), one for each task.")
    arrays = [_pair(f"{name}[{place}]", pair) for place, pair in enumerate(pairs)]
    first = arrays[0][0]
    for place, (inputs, _) in enumerate(arrays):
        if inputs.shape[1:] != first.shape[1:] or inputs.dtype != first.dtype:
            raise EngramError(
                f"{name}[{place}] must have inputs like those of {name}[0], {first.dtype} "
                f"{list(first.shape[1:])}, not {inputs.dtype} {list(inputs.shape[1:])}."
            )
    return arrays


def _pair(name: str, pair: Pair) -> Arrays:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise EngramError(f"{name} must be a pair (inputs, labels), not a {type(pair).__name__}.")
    inputs, labels = (_array(name, part) for part in pair)
    images = inputs.ndim == 4 and inputs.shape[1] == 3
    if not (inputs.ndim == 2 or images) or labels.shape != inputs.shape[:1] or not len(labels):
        raise EngramError(
            f"{name} must have inputs [N, features] or [N, 3, height, width] and labels [N], "
            f"not {list(inputs.shape)} and {list(labels.shape)}."
        )
    if labels.dtype.kind not in "iubU":
        raise EngramError(
            f"The labels of {name} must be whole numbers or texts, not {labels.dtype}."
        )
    if inputs.dtype != np.uint8:
        if inputs.dtype.kind not in "fiub":
            raise EngramError(f"The inputs of {name} must be numbers, not {inputs.dtype}.")
        inputs = inputs.astype(np.float32)
        if not np.isfinite(inputs).all():
            raise EngramError(f"The inputs of {name} must be finite, and one is not.")
    return inputs, labels


def _array(name: str, part: object) -> NDArray[Any]:
    try:
        return part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, sparse, without values
        raise EngramError(f"{name} must be of arrays, not {shown(part)}: {error}.") from error
