"""CUB-200-2011 in its official folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engram.errors import EngramError
from engram.lab.data.images import SIDE, Decoded, Layout, decode_images

_LISTS = ("images", "image_class_labels", "train_test_split")


def cub_layout(folder: Path) -> Layout:
    """Return the layout of ``CUB_200_2011``: lists by image number, and the folder ``images``.

    The official split in the official order; the label is the class number less one. Images are
    resized to 224 by 224 pixels, their aspect not kept.
    """
    lists = [folder / f"{name}.txt" for name in _LISTS]
    paths, labels, training = (_table(path) for path in lists)
    if not paths or not paths.keys() == labels.keys() == training.keys():
        raise EngramError(f"The lists in {str(folder)!r} are empty or name different images.")
    if not set(training.values()) <= {"0", "1"}:
        raise EngramError(f"{str(lists[2])!r} has something else than 0 and 1.")
    images = {number: folder / "images" / path for number, path in paths.items()}
    numbers = [number for number in paths if training[number] == "1"]
    others = [number for number in paths if training[number] == "0"]
    classes = folder / "classes.txt"

    def decode() -> Decoded:
        return Decoded(
            train_labels=_labels(lists[1], [labels[number] for number in numbers]),
            test_labels=_labels(lists[1], [labels[number] for number in others]),
            class_names=_names(classes) if classes.is_file() else (),
            size=(SIDE, SIDE),
            images=decode_images([images[number] for number in numbers + others]),
        )

    named = [classes] if classes.is_file() else []
    return Layout("cub-200-2011", (*lists, *named, *images.values()), decode)


def _table(path: Path) -> dict[str, str]:
    """Return what a list says of each number, in the order of its lines."""
    try:
        lines = path.read_text("utf-8").splitlines()
        rows = (line.split(maxsplit=1) for line in lines)
        return {number: text.strip() for number, text in rows}
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise EngramError(f"{str(path)!r} is not a list of CUB-200-2011.") from error


def _labels(path: Path, texts: list[str]) -> np.ndarray:
    try:
        labels = np.array([int(text) - 1 for text in texts], dtype=np.int64)
    except ValueError:
        labels = np.array([-1])
    if (labels < 0).any():
        raise EngramError(f"{str(path)!r} has a class that is not a whole number from 1.")
    return labels


def _names(path: Path) -> tuple[str, ...]:
    """Return the names of the classes, which are written as in ``001.Black_footed_Albatross``."""
    return tuple(text.partition(".")[2] for text in _table(path).values())
