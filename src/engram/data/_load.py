"""Data sets by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from engram.data._cache import cached
from engram.data._catalogue import CATALOGUE, Source, source
from engram.data._folders import data_folder
from engram.data._forms import FORMS, layout, locate
from engram.data._images import ImageSet
from engram.errors import EngramError, unknown


def load(name: str, folder: Path | None = None) -> ImageSet:
    """Return a data set from its official folder or archive, images mapped from the cache.

    ``folder`` holds it, for example as ``cifar-100-binary/train.bin``; without one, the folder is
    ``$ENGRAM_DATA``, or else where `fetch` puts what it downloads. The folder is only read: what
    is decoded goes to the cache, once.
    """
    if name not in FORMS:
        raise unknown("data set", name, FORMS)
    place = located(source(name), folder)
    return cached(layout(source(name), place))


def checksum(name: str, folder: Path | None = None) -> str:
    """Return the SHA-256 of a data set's decoded content: shapes, labels and pixels."""
    return load(name, folder).checksum


def sources(folder: Path | None = None) -> list[Source]:
    """Return all that can be had, and where each lies in the folder, if it does."""
    where = data_folder(folder)
    return [
        dataclasses.replace(known, present=locate(known, where)) for known in CATALOGUE.values()
    ]


def located(wanted: Source, folder: Path | None) -> Path:
    """Return where a source lies, or an error that says how to have it."""
    where = data_folder(folder)
    place = locate(wanted, where)
    if place is None:
        raise EngramError(
            f"{wanted.title} is not in {str(where)!r}, which has no {wanted.folder or wanted.file}:"
            " name the folder that has it with --data or ENGRAM_DATA, or run "
            f"`engram data fetch {wanted.name}`."
        )
    return place
