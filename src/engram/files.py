"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import glob
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engram.errors import EngramError

_ENDING = ".partial"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield what `replacement` does, in folders that are made as needed.

    An EngramError says where and why a file could not be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as part:
            yield part
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from error


@contextmanager
def replacement(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield a new, empty file that takes the place of ``path`` at the end, on the disk for good.

    It lies beside ``path``, ends like it, and is made with the rights of ``mode``, less the umask.
    Any number of threads and processes may write the same file: the last one's stays. After an
    error nothing is left, and what was there before still is. A device or a pipe is not replaced.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # a folder says so itself
        raise OSError(errno.EEXIST, "what is there is no file")
    part = path.parent / f".{path.name}.{uuid.uuid4().hex}{_ENDING}{path.suffix}"
    try:
        part.touch(mode, exist_ok=False)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError, ValueError):  # a value: no name for a file
            part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def leftovers(path: Path) -> Iterator[Path]:
    """Return what killed processes have left of their replacements of a file."""
    return path.parent.glob(f".{glob.escape(path.name)}.*{_ENDING}{glob.escape(path.suffix)}")


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the system has a way to ask for it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with suppress(OSError):  # a network drive may have none, and the file is whole already
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
