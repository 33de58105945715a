"""A nested state as JSON and tensors, and back: strictly typed, nothing unpickled."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError

Json: TypeAlias = Any
Tensors: TypeAlias = dict[str, Tensor]

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: object, name: str, tensors: Tensors) -> Json:
    """Return a state as JSON; its tensors and arrays go to ``tensors``, by their place in it.

    A state is made of dicts with text for keys, lists, tuples, tensors, arrays and what JSON
    holds. Every container is one entry that names its type. A named tuple comes back as a tuple.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor):
        return {"tensor": _put(value, name, tensors)}
    if isinstance(value, np.ndarray):
        return {"array": _put(_from_numpy(value, name), name, tensors)}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = value.items()
        return {"dict": {key: encode(item, f"{name}/{key}", tensors) for key, item in items}}
    raise _cannot(name, type(value).__name__)


def decode(node: Json, tensors: Tensors) -> Any:  # noqa: ANN401
    """Return the state that `encode` told."""
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, dict) and len(node) == 1:
        ((kind, content),) = node.items()
        if kind == "dict" and isinstance(content, dict):
            return {key: decode(item, tensors) for key, item in content.items()}
        if kind in ("list", "tuple") and isinstance(content, list):
            items = [decode(item, tensors) for item in content]
            return items if kind == "list" else tuple(items)
        if kind in ("tensor", "array") and isinstance(content, str) and content in tensors:
            return tensors[content] if kind == "tensor" else tensors[content].numpy()
        if kind == "float" and isinstance(content, str) and content in _NOT_FINITE:
            return _NOT_FINITE[content]
    raise EngramError(f"A state has no entry like {str(node)[:60]!r}.")


def _put(tensor: Tensor, name: str, tensors: Tensors) -> str:
    if name in tensors:  # a key with a slash in it could lead here
        raise EngramError(f"Two tensors of a method's state have the name {name!r}.")
    if tensor.is_meta or tensor.layout is not torch.strided:
        raise _cannot(name, f"tensor on {tensor.device.type} with {tensor.layout}")
    # A copy: a file holds no two tensors that share memory, and a view of some may be long.
    tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()
    return name


def _from_numpy(array: np.ndarray[Any, Any], name: str) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
    except TypeError:
        raise _cannot(name, f"array of {array.dtype}") from None


def _cannot(name: str, kind: str) -> EngramError:
    return EngramError(
        f"The state of a method must be of dicts, lists, tensors, arrays and JSON values to be "
        f"saved, but {name} is a {kind}."
    )
