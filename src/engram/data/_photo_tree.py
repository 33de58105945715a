"""What a folder of images means: a folder for each class, maybe within one for each task."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engram.errors import EngramError

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


class Group(NamedTuple):
    """The images of one class in one task."""

    task: str  # empty where the folders are classes alone
    name: str  # the class's


class PhotoTree(NamedTuple):
    """The images of every group, in natural order."""

    train: dict[Group, list[Path]]
    test: dict[Group, list[Path]]  # empty where no images are set apart


def photo_tree(folder: Path) -> PhotoTree:
    """Return a folder's images by task and class; ``train`` and ``test`` in it are told apart."""
    if not folder.is_dir():
        raise EngramError(f"folder: must be followed by a folder, which {str(folder)!r} is not.")
    parts = [folder / "train", folder / "test"]
    if not parts[1].is_dir():
        return PhotoTree(_groups(folder), {})
    if not parts[0].is_dir():
        raise EngramError(f"{str(folder)!r} has a folder test, but no folder train beside it.")
    train, test = (_groups(part) for part in parts)
    for group, paths in test.items():
        if group not in train:
            raise EngramError(
                f"{str(paths[0].parent)!r} has test images of a class that "
                f"{str(parts[0] / group.task)!r} has no training images of."
            )
    return PhotoTree(train, test)


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


def _images(folder: Path) -> list[Path]:
    found = _within(folder, _is_image)
    if not found:
        raise EngramError(f"{str(folder)!r} has no images in it ({', '.join(_SUFFIXES)}).")
    return found


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and path.is_file()


def _within(folder: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """Return what is wanted in a folder, in natural order; names with a dot first are hidden."""
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise EngramError(f"{str(folder)!r} cannot be read: {error.strerror}.") from error
    return sorted(filter(wanted, paths), key=lambda path: natural(path.name))
