"""Decoded images on disk: one memory-mapped array of 8 bits, and a page about it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.data._folders import cache_folder
from engram.data._images import Decoded, ImageSet, Layout
from engram.errors import EngramError
from engram.files import whole_file

if TYPE_CHECKING:
    from hashlib import _Hash

_FORMAT = 1  # of the cache and of what is decoded; a new one leaves the old files alone
_PIECE = 1 << 24  # bytes that are read at a time to be checked
_LOG = logging.getLogger(__name__)
_WHOLE: set[tuple[object, ...]] = set()  # what this process has checked: place and state of files


def cached(layout: Layout) -> ImageSet:
    """Return the data set, decoded at the first call and mapped from the cache ever after.

    The cache belongs to the files as they are: their paths, sizes and times of change. Two
    processes that decode at once write the same bytes, and each file replaces the other's whole.
    What is in the cache is held to its checksum once in every process, so that the images are
    those that results are filed under; a cache that is damaged is told of and decoded anew.
    """
    place = cache_folder() / "decoded" / f"{layout.name}-{_identity(layout)}"
    found = _read(place)
    if found is None:
        if place.with_suffix(".json").exists():  # it is written last
            _LOG.warning("The decoded images %s are damaged, and are decoded anew.", place)
        _write(place, layout.decode())
        found = _read(place)
    if found is None:
        raise EngramError(f"The cache {str(place)!r} was changed while it was written; try again.")
    return found


def _identity(layout: Layout) -> str:
    files = []
    for path in layout.files:
        try:
            state = path.stat()
        except OSError as error:
            raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
        files.append([str(path.absolute()), state.st_size, state.st_mtime_ns])
    text = json.dumps([_FORMAT, layout.name, files])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write(place: Path, decoded: Decoded) -> None:
    """Write the array, then the page: where there is a page, the array is whole."""
    train, test = decoded.train_labels, decoded.test_labels
    shape = (len(train) + len(test), 3, *decoded.size)
    digest = _digest(shape, train, test)
    with whole_file(place.with_suffix(".npy")) as part, part.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        # Written, not mapped: a full disk is then an error and not the end of the process.
        for piece in decoded.images:
            content = np.ascontiguousarray(piece)
            digest.update(content.data)
            file.write(content.data)
    page = {
        "train_labels": train.tolist(),
        "test_labels": test.tolist(),
        "class_names": decoded.class_names,
        "class_names_checksum": _names_checksum(decoded.class_names),
        "checksum": digest.hexdigest(),
    }
    with whole_file(place.with_suffix(".json")) as part:
        part.write_text(json.dumps(page), "utf-8")


def _read(place: Path) -> ImageSet | None:
    """Return what is cached, or None where nothing is, or not what was written."""
    files = [place.with_suffix(suffix) for suffix in (".json", ".npy")]
    try:
        state = (place, *(_state(path) for path in files))
        page = json.loads(files[0].read_bytes())
        images = np.load(files[1], mmap_mode="r", allow_pickle=False)
        train = np.array(page["train_labels"], dtype=np.int64)
        test = np.array(page["test_labels"], dtype=np.int64)
        names, checksum = tuple(page["class_names"]), page["checksum"]
        told = page.get("class_names_checksum")  # pages of before have none
    except Exception:  # NumPy's reader may raise anything at a header that is damaged
        return None
    if not isinstance(images, np.memmap):  # but a container of others
        return None
    if images.dtype != np.uint8 or not images.flags.c_contiguous:
        return None
    if len(images) != len(train) + len(test) or told not in (None, _names_checksum(names)):
        return None
    if state not in _WHOLE:
        if _checksum(images, train, test) != checksum:
            return None
        _WHOLE.add(state)
    cut = len(train)
    return ImageSet(images[:cut], train, images[cut:], test, names, checksum)


def _state(path: Path) -> tuple[int, ...]:
    """Return what is another after any change of a file."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _checksum(images: np.ndarray, train: np.ndarray, test: np.ndarray) -> str:
    digest = _digest(images.shape, train, test)
    content = images.reshape(-1)
    for start in range(0, len(content), _PIECE):
        digest.update(content[start : start + _PIECE].data)
    return digest.hexdigest()


def _digest(shape: Sequence[int], train: np.ndarray, test: np.ndarray) -> _Hash:
    """Return the SHA-256 of all but the pixels."""
    digest = hashlib.sha256(repr((tuple(shape), len(train))).encode())
    for labels in (train, test):
        digest.update(labels.astype("<i8").tobytes())
    return digest


def _names_checksum(names: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()
