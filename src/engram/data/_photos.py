"""Folders of somebody's own images, decoded once."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engram.data._cache import cached
from engram.data._images import Decoded, ImageSet, Layout
from engram.data._photo_tree import Group, photo_tree
from engram.data._pixels import decode_images
from engram.errors import EngramError

if TYPE_CHECKING:
    from PIL import Image

_MANY = 500  # images take long enough to decode that somebody should be told
_LOG = logging.getLogger(__name__)


class Photos(NamedTuple):
    """The images of a folder; a label is the place of its group."""

    images: ImageSet  # without any test images where the folder tells none apart
    groups: tuple[Group, ...]  # by task, then by class, in natural order
    passed_over: dict[str, int]  # what else is in the folder: how often each ending


def load_photos(folder: Path, size: int) -> Photos:
    """Return a folder's images as squares of ``size`` pixels, mapped from the cache."""
    tree = photo_tree(folder)
    places = {group: place for place, group in enumerate(tree.train)}
    train, test = (
        [(path, places[group]) for group, paths in part.items() for path in paths]
        for part in (tree.train, tree.test)
    )
    paths = [path for path, _ in train + test]

    def decode() -> Decoded:
        if len(paths) > _MANY:
            _LOG.warning("Decoding the %s images of %s, once.", f"{len(paths):,}", folder)
        return Decoded(
            train_labels=np.array([group for _, group in train], dtype=np.int64),
            test_labels=np.array([group for _, group in test], dtype=np.int64),
            class_names=(),
            size=(size, size),
            images=decode_images(paths, partial(square, size=size)),
        )

    images = cached(Layout(f"photos-{size}", tuple(paths), decode))
    return Photos(images, tuple(places), tree.passed_over)


def square(image: Image.Image, size: int) -> np.ndarray:
    """Return an opened image as uint8 [size, size, 3], its aspect not kept.

    It is turned as its camera says, and smoothed where it shrinks.
    """
    from PIL import Image, ImageOps

    if image.mode.startswith(("I", "F")):
        raise EngramError(f"it has more than 8 bits a channel (Pillow's mode {image.mode!r}).")
    image.draft("RGB", (2 * size, 2 * size))  # a JPEG need not be decoded larger than it is used
    upright = ImageOps.exif_transpose(image)
    if "transparency" in upright.info:
        upright = upright.convert("RGBA")  # which Pillow asks for
    return np.asarray(upright.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
