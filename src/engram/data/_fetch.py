"""Downloading what is not here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from engram.data._archives import unpack
from engram.data._catalogue import Source, source
from engram.data._download import Progress, download
from engram.data._folders import data_folder
from engram.data._forms import locate
from engram.errors import EngramError


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    urls: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download a source unless it is there, and return where it lies.

    What is downloaded is checked, unpacked and then removed; ``urls`` stand in for the official
    addresses, and ``progress`` is told the bytes that are here and those in all. A second call
    continues what a first one left. Of two processes that fetch into one folder, one waits.
    """
    wanted, where = source(name), data_folder(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
        with _alone(where):
            found = locate(wanted, where)
            return found or _fetch(wanted, where, urls or wanted.urls, progress or _silent)
    except OSError as error:
        raise EngramError(
            f"{str(where)!r} cannot be written: {error.strerror or error}."
        ) from error


def _fetch(wanted: Source, where: Path, urls: Sequence[str], progress: Progress) -> Path:
    if wanted.folder and (where / wanted.folder).exists():
        raise EngramError(
            f"{str(where / wanted.folder)!r} is not a whole {wanted.name}: move it away first."
        )
    part = where / f"{wanted.file}.part"
    _check_space(wanted, where, part)
    limit = wanted.bytes + wanted.bytes // 4
    download(urls, part, checksum=wanted.checksum, limit=limit, progress=progress)
    if not wanted.folder:
        return part.replace(where / wanted.file)
    place = unpack(part, where, wanted.folder, limit=2 * wanted.unpacked)
    part.unlink()
    return place


def _check_space(wanted: Source, where: Path, part: Path) -> None:
    here = part.stat().st_size if part.exists() else 0
    needed = max(wanted.bytes - here, 0) + wanted.unpacked
    free = shutil.disk_usage(where).free
    if free < needed:
        raise EngramError(
            f"{wanted.title} needs {needed / 1e9:.1f} GB in {str(where)!r}, where {free / 1e9:.1f} "
            "GB are free."
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process fetches into a folder, where the system can tell."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):  # Windows; a network drive without locks
            import fcntl

            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _silent(here: int, total: int) -> None:
    """Tell nobody."""
