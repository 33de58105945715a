"""Decoded images on disk: one memory-mapped array of 8 bits, and a page about it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from engram.data._folders import cache_folder
from engram.data._images import Decoded, ImageSet, Layout
from engram.errors import EngramError
from engram.files import whole_file

_FORMAT = 1  # of the cache and of what is decoded; a new one leaves the old files alone


def cached(layout: Layout) -> ImageSet:
    """Return the data set, decoded at the first call and mapped from the cache ever after.

    The cache belongs to the files as they are: their paths, sizes and times of change. Two
    processes that decode at once write the same bytes, and each file replaces the other's whole.
    """
    place = cache_folder() / "decoded" / f"{layout.name}-{_identity(layout)}"
    found = _read(place)
    if found is None:
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
    digest = hashlib.sha256(repr((shape, len(train))).encode())
    for labels in (train, test):
        digest.update(labels.astype("<i8").tobytes())
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
        "checksum": digest.hexdigest(),
    }
    with whole_file(place.with_suffix(".json")) as part:
        part.write_text(json.dumps(page), "utf-8")


def _read(place: Path) -> ImageSet | None:
    """Return what is cached, or None where nothing is, or not all of it."""
    try:
        page = json.loads(place.with_suffix(".json").read_bytes())
        images = np.load(place.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
        train = np.array(page["train_labels"], dtype=np.int64)
        test = np.array(page["test_labels"], dtype=np.int64)
        names, checksum = tuple(page["class_names"]), page["checksum"]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None
    if len(images) != len(train) + len(test):
        return None
    cut = len(train)
    return ImageSet(images[:cut], train, images[cut:], test, names, checksum)
