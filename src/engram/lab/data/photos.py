"""Folders of somebody's own images: a folder for each class, maybe within one for each task."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engram.errors import EngramError
from engram.lab.data.images import Decoded, ImageSet, Layout, cached, decode_images

if TYPE_CHECKING:
    from PIL import Image

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_NOBODYS = {"desktop.ini", "thumbs.db"}  # which Windows leaves; what a Mac leaves is hidden
_MANY = 500  # images take long enough to decode for a message
_LOG = logging.getLogger(__name__)


class Group(NamedTuple):
    """The images of one class in one task."""

    task: str  # empty where the folders are classes alone
    name: str  # the class's


class Photos(NamedTuple):
    """The images of a folder; a label is the place of its group."""

    images: ImageSet  # without any test images where the folder has no ``test``
    groups: tuple[Group, ...]  # by task, then by class, in natural order
    passed_over: dict[str, int]  # what else is in the folder: how often each ending


def load_photos(folder: Path, size: int) -> Photos:
    """Return a folder's images as squares of ``size`` pixels, mapped from the cache."""
    tree = _read_tree(folder)
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
            images=decode_images(paths, partial(_square, size=size)),
        )

    images = cached(Layout(f"photos-{size}", tuple(paths), decode))
    return Photos(images, tuple(places), tree.passed_over)


class FoundPhotos(NamedTuple):
    """The images that a folder has now, each with the name of its class."""

    images: list[tuple[Path, str]]  # in natural order; without a name where nobody asked for one
    named: bool
    passed_over: dict[str, int]


def find_photos(folder: Path, *, flat: bool = False) -> FoundPhotos:
    """Return a folder's images with their classes; ``flat`` is for images that may have none."""
    if not flat:
        tree = _read_tree(folder)
        named = [
            (path, group.name)
            for part in (tree.train, tree.test)
            for group, paths in part.items()
            for path in paths
        ]
        return FoundPhotos(named, True, tree.passed_over)
    if not folder.is_dir():
        raise EngramError(f"folder: must be followed by a folder, which {str(folder)!r} is not.")
    found, open_ = list[Path](), [folder]
    while open_:
        place = open_.pop()
        found += _within(place, _is_image)
        open_ += _within(place, Path.is_dir)
    if not found:
        raise EngramError(f"{str(folder)!r} has no images in it ({', '.join(_SUFFIXES)}).")
    found.sort(key=lambda path: natural(path.relative_to(folder).as_posix()))
    return FoundPhotos([(path, "") for path in found], False, {})


def decode_photos(paths: Sequence[Path], size: int) -> np.ndarray:
    """Return images as squares, uint8 [n, 3, size, size]; no copy of them is kept on the disk."""
    pieces = list(decode_images(paths, partial(_square, size=size)))
    return np.concatenate(pieces)


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return what names are sorted by so that numbers in them count as numbers.

    >>> sorted(["week 10", "Week 9", "10 cats", "9 cats"], key=natural)
    ['9 cats', '10 cats', 'Week 9', 'week 10']
    """
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return [_rank(part) for part in parts], name


def _rank(part: str) -> tuple[int, int, str]:
    if not part.isdecimal():
        return 1, 0, part.casefold()
    digits = part.lstrip("0")  # not as a number: Python makes none of thousands of digits
    return 0, len(digits), digits


class _Tree(NamedTuple):
    """The images of every group, in natural order."""

    train: dict[Group, list[Path]]
    test: dict[Group, list[Path]]  # empty where no images are set apart
    passed_over: dict[str, int]  # what else there is: how often each ending, most often first


def _read_tree(folder: Path) -> _Tree:
    """Return a folder's images by task and class; ``train`` and ``test`` in it are kept apart."""
    if not folder.is_dir():
        problem = "is none" if folder.exists() else "does not exist"
        raise EngramError(f"folder: must be followed by a folder; {str(folder)!r} {problem}.")
    parts = [folder / "train", folder / "test"]
    if not parts[1].is_dir():
        groups = _groups(folder)
        return _Tree(groups, {}, _passed_over(folder, groups.values()))
    if not parts[0].is_dir():
        raise EngramError(f"{str(folder)!r} has a folder test, but no folder train beside it.")
    train, test = (_groups(part) for part in parts)
    _check_in(train, test, parts[0], "test", "training")
    _check_in(test, train, parts[1], "training", "test")
    return _Tree(train, test, _passed_over(folder, [*train.values(), *test.values()]))


def _groups(root: Path) -> dict[Group, list[Path]]:
    tops = {top: _within(top, Path.is_dir) for top in _within(root, Path.is_dir)}
    if not tops:
        raise EngramError(
            f"{str(root)!r} has no folders in it: it must have one for each class, "
            "or one for each task and in it one for each class."
        )
    flat = [top for top, folders in tops.items() if not folders]
    deep = [top for top, folders in tops.items() if folders]
    if flat and deep:
        raise EngramError(
            f"{str(root)!r} must have a folder for each class, or one for each task and in it one "
            f"for each class, but {deep[0].name!r} in it has folders and {flat[0].name!r} has none."
        )
    if flat:
        return {Group("", top.name): _images(top) for top in flat}
    for top in deep:
        if beside := _within(top, _is_image):
            raise EngramError(f"The image {str(beside[0])!r} lies beside folders and is of none.")
    return {
        Group(top.name, name.name): _images(name) for top, names in tops.items() for name in names
    }


def _check_in(
    others: dict[Group, list[Path]],
    groups: dict[Group, list[Path]],
    root: Path,
    kind: str,
    other: str,
) -> None:
    """Refuse a group that has no others in the folder of these."""
    for group, paths in groups.items():
        if group not in others:
            raise EngramError(
                f"{str(paths[0].parent)!r} has {kind} images of a class that "
                f"{str(root / group.task)!r} has no {other} images of."
            )


def _passed_over(folder: Path, groups: Iterable[list[Path]]) -> dict[str, int]:
    """Return what is neither an image of these nor a folder on the way to one, by its ending."""
    images = {image for paths in groups for image in paths}
    ways = {way for place in {image.parent for image in images} for way in (place, *place.parents)}
    counts = Counter[str]()
    open_ = [folder]
    while open_:
        for path in _seen(open_.pop()):
            if path in ways:
                open_.append(path)
            elif path not in images and path.name.lower() not in _NOBODYS:
                counts[_ending(path)] += 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _ending(path: Path) -> str:
    if path.is_symlink() and not path.exists():  # which may have been a whole class or task
        return f"{path.name} (a link to nowhere)"
    return f"{path.name}/" if path.is_dir() else path.suffix.lower() or "without an ending"


def _images(folder: Path) -> list[Path]:
    found = _within(folder, _is_image)
    if not found:
        raise EngramError(f"{str(folder)!r} has no images in it ({', '.join(_SUFFIXES)}).")
    return found


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and path.is_file()


def _within(folder: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """Return what is wanted in a folder, in natural order."""
    return sorted(filter(wanted, _seen(folder)), key=lambda path: natural(path.name))


def _seen(folder: Path) -> list[Path]:
    """Return what is in a folder and not hidden, as names are that begin with a dot."""
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise EngramError(f"{str(folder)!r} cannot be read: {error.strerror}.") from error


def _square(image: Image.Image, size: int) -> np.ndarray:
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
