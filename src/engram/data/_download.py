"""Downloads that resume, and that only their checksum declares whole."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from io import FileIO
from pathlib import Path
from typing import IO

from engram.errors import EngramError

Progress = Callable[[int, int], None]  # bytes that are here, bytes in all

_PATIENCE = 60.0  # seconds without a byte
_PIECE = 1 << 20  # bytes
_NOTHING_LEFT = 416  # the status of a request for bytes after the last


class _BrokenError(Exception):
    """A transfer that did not come to its end, and why."""


def download(
    urls: Iterable[str], part: Path, *, checksum: str, limit: int, progress: Progress
) -> None:
    """Bring a file to ``part`` from the first address that has it.

    A transfer that breaks off is taken up where it stopped, as long as that gains something; then
    the next address is tried. A file with another checksum, or of more than ``limit`` bytes, is
    removed. After any other failure what has come stays, for the next call to continue.
    """
    reasons = []
    for url in urls:
        try:
            if _brought(url, part, checksum, limit, progress):
                return
            reasons.append(f"{url} gave a file with another checksum")
        except _BrokenError as broken:
            reasons.append(f"{url} {broken}")
    raise EngramError(
        f"{part.stem} could not be downloaded: {'; '.join(reasons)}. The same command continues "
        "where this one stopped."
    )


def _brought(url: str, part: Path, checksum: str, limit: int, progress: Progress) -> bool:
    """Say whether the file that came is the right one; a wrong one is gone."""
    resumed = _size(part) > 0
    _transfer(url, part, limit, progress)
    if matches(part, checksum):
        return True
    part.unlink()
    # What was here before may have been what was wrong: then it is asked for once more, whole.
    return resumed and _brought(url, part, checksum, limit, progress)


def matches(path: Path, checksum: str) -> bool:
    """Say whether a file has a checksum, which is written as ``sha256:…`` or ``md5:…``."""
    kind, _, wanted = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest() == wanted


def _transfer(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Ask for the rest until all is here or nothing more comes."""
    reached = -1
    while reached < _size(part):
        reached = _size(part)
        try:
            if _ask(url, part, limit, progress):
                return
            reason = f"broke off after {_size(part):,} bytes"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NOTHING_LEFT and reached:
                return
            raise _BrokenError(f"answered {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = f"failed: {getattr(error, 'reason', None) or error or type(error).__name__}"
    raise _BrokenError(reason)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _ask(url: str, part: Path, limit: int, progress: Progress) -> bool:
    """Send one request and keep what it brings; say whether that is the end of the file."""
    start = _size(part)
    headers = {"User-Agent": "engram"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
        if response.status == http.client.PARTIAL_CONTENT:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise _BrokenError("answered with other bytes than it was asked for")
        else:
            start = 0  # it does not know how to resume
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        if total is not None and total > limit:
            raise _BrokenError(f"offers {total:,} bytes, more than the {limit:,} that are possible")
        end = _keep(response, part, start, limit, lambda here: progress(here, total or limit))
    return total is None or end == total


def _keep(
    response: IO[bytes], part: Path, start: int, limit: int, progress: Callable[[int], None]
) -> int:
    """Write what comes behind the first ``start`` bytes; return where it ends."""
    with _opened(part, start) as file:
        while piece := response.read(_PIECE):
            start += len(piece)
            if start > limit:
                file.truncate(0)
                raise _BrokenError(f"sent more than the {limit:,} bytes that are possible")
            _write(file, piece, part)
            progress(start)
    return start


def _opened(part: Path, start: int) -> FileIO:
    try:
        return FileIO(part, "ab" if start else "wb")
    except OSError as error:
        raise _unwritable(part, error) from error


def _write(file: FileIO, piece: bytes, part: Path) -> None:
    """Write past every buffer, so that a full disk is told by the write that meets it."""
    left = memoryview(piece)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _unwritable(part, error) from error


def _unwritable(part: Path, error: OSError) -> EngramError:
    return EngramError(f"{str(part)!r} cannot be written: {error.strerror}.")
