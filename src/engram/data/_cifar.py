"""CIFAR-100 in its two official forms: binary records, and pickles of Python 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engram.data._cifar_python import read_names, read_part
from engram.data._images import Decoded, Layout
from engram.errors import EngramError

_PIXELS = 3 * 32 * 32
_RECORD = 2 + _PIXELS  # coarse label, fine label, then the red, green and blue planes
_CLASSES = 100
_PIECE = 10_000  # images


class _Part(NamedTuple):
    images: np.ndarray  # uint8 [N, 3072]
    labels: np.ndarray  # int64 [N], the fine ones


def binary(folder: Path) -> Layout:
    """Return the layout of ``cifar-100-binary``: train.bin and test.bin."""
    names = folder / "fine_label_names.txt"
    files = (folder / "train.bin", folder / "test.bin")

    def decode() -> Decoded:
        named = tuple(names.read_text("utf-8").split()) if names.is_file() else ()
        return _decoded(_records(files[0]), _records(files[1]), _hundred(names, named))

    return Layout("cifar-100", files + ((names,) if names.is_file() else ()), decode)


def python(folder: Path) -> Layout:
    """Return the layout of ``cifar-100-python``: the pickles train, test and meta."""
    names = folder / "meta"
    files = (folder / "train", folder / "test")

    def decode() -> Decoded:
        named = read_names(names) if names.is_file() else ()
        train, test = (_checked(path, _Part(*read_part(path))) for path in files)
        return _decoded(train, test, _hundred(names, named))

    return Layout("cifar-100", files + ((names,) if names.is_file() else ()), decode)


def _records(path: Path) -> _Part:
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    if not len(content) or len(content) % _RECORD:
        raise EngramError(
            f"{str(path)!r} is not a binary file of CIFAR-100, or is cut short: it has "
            f"{len(content)} bytes, which is not a multiple of {_RECORD}."
        )
    records = content.reshape(-1, _RECORD)
    return _checked(path, _Part(records[:, 2:], records[:, 1].astype(np.int64)))


def _checked(path: Path, part: _Part) -> _Part:
    if part.labels.min() < 0 or part.labels.max() >= _CLASSES:
        raise EngramError(f"{str(path)!r} is not CIFAR-100: a fine label is not 0 to 99.")
    return part


def _hundred(path: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) not in (0, _CLASSES):
        raise EngramError(f"{str(path)!r} names {len(names)} classes, not {_CLASSES}.")
    return names


def _decoded(train: _Part, test: _Part, class_names: tuple[str, ...]) -> Decoded:
    images = _pieces(train, test)
    return Decoded(train.labels, test.labels, class_names, (32, 32), images)


def _pieces(*parts: _Part) -> Iterator[np.ndarray]:
    for part in parts:
        for start in range(0, len(part.images), _PIECE):
            yield part.images[start : start + _PIECE].reshape(-1, 3, 32, 32)
