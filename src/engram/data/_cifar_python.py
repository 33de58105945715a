"""The arrays, labels and names in the pickles of CIFAR-100, none of them unpickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engram.data._pickled import Call, Name, read_pickle
from engram.errors import EngramError

_ARRAYS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_DTYPE = "numpy dtype"
_NAMES = {*_ARRAYS, "numpy ndarray", _DTYPE}


def read_part(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the images, uint8 [N, 3072], and the fine labels, int64 [N], of a file."""
    content = read_pickle(path, _NAMES)
    try:
        images = _array(content["data"])
        labels = np.array(_list(content["fine_labels"], int), dtype=np.int64)
        if images.shape != (len(labels), 3072) or not len(labels):
            raise ValueError
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(path) from error
    return images, labels


def read_names(path: Path) -> tuple[str, ...]:
    """Return the names of the fine classes in the file ``meta``."""
    content = read_pickle(path, _NAMES)
    try:
        return tuple(str(name) for name in _list(content["fine_label_names"], str))
    except (KeyError, TypeError) as error:
        raise _foreign(path) from error


def _foreign(path: Path) -> EngramError:
    return EngramError(f"{str(path)!r} is not a python file of CIFAR-100, or is damaged.")


def _array(value: object) -> np.ndarray:
    """Return the array of a call with the state (version, shape, dtype, by columns?, content)."""
    if not isinstance(value, Call) or value.function not in [Name(name) for name in _ARRAYS]:
        raise TypeError
    if not isinstance(value.state, tuple):
        raise TypeError
    _, shape, kind, by_columns, content = value.state
    if not isinstance(kind, Call) or kind.function != Name(_DTYPE) or not isinstance(content, str):
        raise TypeError
    if not isinstance(kind.arguments, tuple) or kind.arguments[:1] != ("u1",):
        raise TypeError
    array = np.frombuffer(content.encode("latin-1"), dtype=np.uint8)
    return array.reshape(shape, order="F" if by_columns else "C")


def _list(value: object, kind: type) -> list[object]:
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise TypeError
    return value
