"""Archives unpacked whole or not at all; one that reaches outside its folder is refused."""

from __future__ import annotations

import gzip
import lzma
import shutil
import stat
import tarfile
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from engram.errors import EngramError

_MOST_ENTRIES = 200_000  # about five times the largest archive we know
_PIECE = 1 << 20  # bytes
_BLOCK = 512  # bytes, of a tar
_BUFFER = 2 * 20 * _BLOCK  # that tarfile reads ahead, and that an archive ends with
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    LookupError,
    RuntimeError,
    ValueError,
)


class _Entry(NamedTuple):
    name: str
    plain: bool  # a file or a folder; not a link, not a device
    size: int  # bytes, as the archive says
    file: IO[bytes] | None  # None for a folder


class _Allowance:
    """How many bytes may still come out of an archive, be they written or passed over."""

    def __init__(self, archive: Path, limit: int) -> None:
        self._archive, self._limit = archive, limit
        self.left = limit

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise EngramError(f"{str(self._archive)!r} unpacks to over {self._limit:,} bytes.")


def unpack(archive: Path, into: Path, folder: str, *, limit: int) -> Path:
    """Unpack an archive's one folder into another; return its path.

    The content is written to a temporary folder that is renamed at the end, so what is there is
    whole. The archive is refused if it names an absolute path, ``..``, a link or a device, or if
    it unpacks to more than ``limit`` bytes: those of every entry count, also of one beside the
    folder, and so does what a tar says of its entries beyond their first block. Owners, modes and
    times are not taken from it. Of two processes that unpack at once, the second to finish leaves
    the first one's.
    """
    temporary = into / f".{folder}.{uuid.uuid4().hex}"
    try:
        temporary.mkdir(parents=True)
        _write(archive, temporary, folder, limit)
        if not (temporary / folder).is_dir():
            raise EngramError(f"{str(archive)!r} has no folder {folder!r} in it.")
        if not (into / folder).is_dir():
            (temporary / folder).rename(into / folder)
    except OSError as error:
        if not (into / folder).is_dir():
            reason = error.strerror or str(error)
            raise EngramError(f"{str(archive)!r} cannot be unpacked: {reason}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return into / folder


def _write(archive: Path, into: Path, folder: str, limit: int) -> None:
    allowance = _Allowance(archive, limit)
    try:
        for count, entry in enumerate(_entries(archive, limit)):
            path = _checked(archive, entry)
            if entry.size < 0:
                raise ValueError("it has an entry of less than nothing")
            if count >= _MOST_ENTRIES:
                raise EngramError(f"{str(archive)!r} has more than {_MOST_ENTRIES:,} entries.")
            if entry.file is None or path.parts[:1] != (folder,):
                allowance.take(entry.size)
                continue  # folders come with their files
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                while piece := entry.file.read(_PIECE):
                    allowance.take(len(piece))
                    file.write(piece)
    except EngramError:
        raise
    except _DAMAGED as error:
        raise EngramError(f"{str(archive)!r} is damaged, or no archive: {error}.") from error


def _entries(archive: Path, limit: int) -> Iterator[_Entry]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for item in opened.infolist():
                kind = stat.S_IFMT(item.external_attr >> 16)  # 0 where no system wrote one
                plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
                if item.is_dir() or not plain:
                    yield _Entry(item.filename, plain, item.file_size, None)
                    continue
                with opened.open(item) as entry:
                    yield _Entry(item.filename, plain, item.file_size, entry)
    else:
        # Through gzip, as tarfile's own reader of streams does not check their sum.
        with gzip.open(archive) as content:
            counted = _Counted(content, _Allowance(archive, limit))
            with tarfile.open(fileobj=cast("IO[bytes]", counted), mode="r|") as stream:
                for member in stream:
                    counted.allowance.left += 2 * _BLOCK  # its header, and what fills its last one
                    plain = member.isfile() or member.isdir()
                    file = stream.extractfile(member) if member.isfile() else None
                    yield _Entry(member.name, plain, member.size, file)
            content.read(_PIECE)  # the padding; the sum stands behind it
            if content.read(1):
                raise tarfile.ReadError("it goes on after its end")


class _Counted:
    """A tar as it comes out of gzip: whatever tarfile reads of it counts, headers of any kind too.

    A sparse file is larger than what it takes in there; that counts when it is written.
    """

    def __init__(self, content: gzip.GzipFile, allowance: _Allowance) -> None:
        self._content, self.allowance = content, allowance
        allowance.left += _BUFFER

    def read(self, size: int) -> bytes:
        piece = self._content.read(size)
        self.allowance.take(len(piece))
        return piece


def _checked(archive: Path, entry: _Entry) -> PurePosixPath:
    path = PurePosixPath(entry.name)
    foreign = {"\\", "\0", ":"} & set(entry.name)  # they have a meaning on some systems
    if path.is_absolute() or ".." in path.parts or foreign:
        raise EngramError(f"{str(archive)!r} is refused: it has the path {entry.name!r}.")
    if not entry.plain:
        raise EngramError(
            f"{str(archive)!r} is refused: {entry.name!r} in it is a link or a device, not a file."
        )
    return path
