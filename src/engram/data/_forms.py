"""Which official folders and archives hold a data set, and finding them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engram.data import _awa, _cifar, _cub
from engram.data._archives import unpack
from engram.data._catalogue import Source
from engram.data._folders import cache_folder
from engram.data._images import Layout


class Form(NamedTuple):
    """One official form of a data set."""

    folder: str
    archive: str  # the file that holds that folder
    mark: str  # what lies in the folder, if it is the right one
    layout: Callable[[Path], Layout]


FORMS = {
    "cifar-100": (
        Form("cifar-100-binary", "cifar-100-binary.tar.gz", "train.bin", _cifar.binary),
        Form("cifar-100-python", "cifar-100-python.tar.gz", "train", _cifar.python),
    ),
    "cub-200-2011": (Form("CUB_200_2011", "CUB_200_2011.tgz", "images.txt", _cub.cub),),
    "awa2": (Form("Animals_with_Attributes2", "AwA2-data.zip", "classes.txt", _awa.awa),),
}


def locate(source: Source, folder: Path) -> Path | None:
    """Return where a source lies in a folder: unpacked, or else its archive."""
    if source.name not in FORMS:
        return _existing(folder / source.file)
    forms = FORMS[source.name]
    unpacked = (
        folder / form.folder for form in forms if (folder / form.folder / form.mark).exists()
    )
    archives = (_existing(folder / form.archive) for form in forms)
    return next(unpacked, None) or next(filter(None, archives), None)


def layout(source: Source, place: Path) -> Layout:
    """Return the layout of what was located; an archive is unpacked into the cache first."""
    form = next(form for form in FORMS[source.name] if place.name in (form.folder, form.archive))
    if place.name == form.archive:
        place = _unpacked(source, form, place)
    return form.layout(place)


def _unpacked(source: Source, form: Form, archive: Path) -> Path:
    """Return the folder in an archive, unpacked once for the archive as it is."""
    state = archive.stat()
    text = f"{archive.absolute()} {state.st_size} {state.st_mtime_ns}"
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    into = cache_folder() / "unpacked" / f"{source.name}-{key}"
    if (into / form.folder).is_dir():
        return into / form.folder
    return unpack(archive, into, form.folder, limit=2 * source.unpacked)


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
