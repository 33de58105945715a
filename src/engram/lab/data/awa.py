"""Animals with Attributes 2 in its official folder."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from engram.errors import EngramError
from engram.lab.data.images import SIDE, Decoded, Layout, decode_images

_FIRST = 10_001  # the number of a class's first image


def awa_layout(folder: Path) -> Layout:
    """Return the layout of ``Animals_with_Attributes2``: classes.txt and ``JPEGImages``.

    The label is the class's place in classes.txt. Of a class with n images, in the order of their
    numbers, the first floor(0.7 n) are for training, the next ceil(0.15 n) for validation (they
    are not read) and the rest for testing. Images are resized to 224 by 224 pixels, their aspect
    not kept.
    """
    classes = folder / "classes.txt"
    names = _names(classes)
    train: list[tuple[Path, int]] = []
    test: list[tuple[Path, int]] = []
    for label, name in enumerate(names):
        images = _images(folder / "JPEGImages" / name)
        first, second = split(len(images))
        train += [(path, label) for path in images[:first]]
        test += [(path, label) for path in images[second:]]

    def decode() -> Decoded:
        return Decoded(
            train_labels=np.array([label for _, label in train], dtype=np.int64),
            test_labels=np.array([label for _, label in test], dtype=np.int64),
            class_names=names,
            size=(SIDE, SIDE),
            images=decode_images([path for path, _ in train + test]),
        )

    return Layout("awa2", (classes, *(path for path, _ in train + test)), decode)


def split(count: int) -> tuple[int, int]:
    """Return where the validation images of a class begin and where they end.

    In floating point on purpose: the published lists were cut so, and where 0.7 n is a whole
    number that double precision misses (720 and 1,420 images) they have one training image fewer.
    """
    begin = math.floor(0.7 * count)
    return begin, begin + math.ceil(0.15 * count)


def _names(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text("utf-8").splitlines()
        names = tuple(name for _, name in (line.split() for line in lines if line.strip()))
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise EngramError(f"{str(path)!r} is not a list of numbers and class names.") from error
    if not names or len(set(names)) < len(names):
        raise EngramError(f"{str(path)!r} has no classes, or one of them twice.")
    return names


def _images(folder: Path) -> list[Path]:
    """Return a class's images by number; a gap between them is an image that is missing."""
    try:
        found = {path.name for path in folder.iterdir() if path.suffix == ".jpg"}
    except OSError as error:
        raise EngramError(f"{str(folder)!r} cannot be read: {error.strerror}.") from error
    names = [f"{folder.name}_{_FIRST + place}.jpg" for place in range(max(len(found), 1))]
    for name in names:
        if name not in found:
            raise EngramError(f"The image {str(folder / name)!r} is missing.")
    return [folder / name for name in names]
