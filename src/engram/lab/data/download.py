"""Fetching what is not here: downloads that resume, and that only their checksum declares whole."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import math
import os
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from engram.errors import EngramError
from engram.lab.data.archives import unpack
from engram.lab.data.catalogue import Source, data_folder, locate, source

Progress = Callable[[int, int], None]  # bytes that are here, bytes in all

_PATIENCE = 60.0  # seconds without a byte
_SLOWEST, _WINDOW = 1_000, 60.0  # bytes a second, over so many seconds
_PIECE = 1 << 20  # bytes
_TRIES = 4  # in a row that bring less than a piece
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before the second try, doubled before each other
_NOTHING_LEFT = 416  # the status of a request for bytes after the last
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # what a server may answer differently in a while


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    urls: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download a source unless it is there, and return where it lies.

    What is downloaded is checked, unpacked and then removed; ``urls`` stand in for the official
    addresses, and ``progress`` is called with the bytes that are here and those in all. A second
    call continues what a first one left. Of two processes that fetch into one folder, one waits.
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
    _download(urls, part, checksum=wanted.checksum, limit=limit, progress=progress)
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
    """Show no progress."""


class _BrokenError(Exception):
    """A transfer that did not come to its end, and why."""


def _download(
    urls: Iterable[str], part: Path, *, checksum: str, limit: int, progress: Progress
) -> None:
    """Bring a file to ``part`` from the first address that has it.

    Addresses are HTTPS, and so is wherever they lead; on this machine they may be HTTP. A transfer
    that breaks off is taken up where it stopped, after a pause; after four tries in a row that
    bring little, or a minute of less than 1,000 bytes a second, the next address is tried. A file
    with another checksum, or of more than ``limit`` bytes, is removed. After any other failure
    what has come stays, for the next call to continue.
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
    if _matches(part, checksum):
        return True
    part.unlink()
    # What was here before may have been what was wrong: then it is asked for once more, whole.
    return resumed and _brought(url, part, checksum, limit, progress)


def _matches(path: Path, checksum: str) -> bool:
    """Say whether a file has a checksum, which is written as ``sha256:…`` or ``md5:…``."""
    kind, _, wanted = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest() == wanted


def _transfer(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Ask for the rest until all is here, or it was asked for often enough."""
    if not _is_allowed(url):
        raise _BrokenError("is no HTTPS address")
    tries = 0
    while True:
        reached, wanted_pause = _size(part), 0.0
        try:
            if _ask(url, part, limit, progress):
                return
            reason = f"broke off after {_size(part):,} bytes"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NOTHING_LEFT and reached:
                return
            reason = f"answered {error.code} {error.reason}"
            if error.code not in _PASSING:
                raise _BrokenError(reason) from error
            wanted_pause = _seconds(error.headers.get("Retry-After"))
        except (OSError, http.client.HTTPException) as error:
            reason = f"failed: {getattr(error, 'reason', None) or error or type(error).__name__}"
        tries = 0 if _size(part) - reached >= _PIECE else tries + 1
        if tries >= _TRIES:
            raise _BrokenError(f"{reason}, and {tries} tries brought no more")
        time.sleep(min(max(_PAUSE * 2 ** max(tries - 1, 0), wanted_pause), _LONGEST_PAUSE))


def _seconds(text: str | None) -> float:
    """Return the pause that a server asks for; a date is left to our own."""
    return float(text) if text is not None and text.isdecimal() and len(text) < 9 else 0.0


def _is_allowed(url: str) -> bool:
    """Whether nobody on the way can read or change what is asked for there."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or (
            parts.scheme == "http" and _is_here(parts.hostname or "")
        )
    except ValueError:
        return False


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections, but not from HTTPS to anything else."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        weaker = req.type == "https" and urlsplit(newurl).scheme != "https"
        if weaker or not _is_allowed(newurl):
            fp.close()
            raise _BrokenError(f"leads to {newurl}, which is no HTTPS address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _ask(url: str, part: Path, limit: int, progress: Progress) -> bool:
    """Send one request and keep what it brings; say whether that is the end of the file."""
    start = _size(part)
    headers = {"User-Agent": "engram"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(url, headers=headers)
    with _opener().open(request, timeout=_PATIENCE) as response:
        if response.status == http.client.PARTIAL_CONTENT:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise _BrokenError("answered with other bytes than it was asked for")
        else:
            start = 0  # it does not know how to resume
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        if total is not None and total > limit:
            raise _BrokenError(f"offers {total:,} bytes, more than the {limit:,} that are possible")
        end = _keep(response, part, start, total, limit, progress)
    return total is None or end == total


class _Answer(http.client.HTTPResponse):
    """An answer that gives what has come, and ends where nothing of the file comes in time.

    A socket waits so long for any byte. But those of a chunk's name or of trailers are none of the
    file, and neither has an end that is certain.
    """

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *args, **kwargs)
        self._socket = sock

    def pieces(self, total: int | None) -> Iterator[bytes]:
        """Yield what comes, of so many bytes in all, or to the end where nobody knows."""
        here, waiting_since = 0, math.inf
        ended, late = threading.Event(), threading.Event()

        def watch() -> None:
            while not ended.wait(_PATIENCE / 4):
                if time.monotonic() - waiting_since > _PATIENCE:
                    late.set()
                    _shut(self._socket)
                    return

        threading.Thread(target=watch, daemon=True).start()
        try:
            # What is there is taken at once: to wait for a whole piece of a server that sends a
            # byte a minute would take two years. It is asked for no more than it has declared.
            while True:
                waiting_since = time.monotonic()
                piece = self.read1(_PIECE if total is None else min(_PIECE, total - here))
                waiting_since = math.inf
                if not piece:
                    break
                here += len(piece)
                yield piece
        except (OSError, http.client.HTTPException):
            if not late.is_set():
                raise
        finally:
            ended.set()
        if late.is_set():
            raise TimeoutError("it brought nothing in time")


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Plain(http.client.HTTPConnection):
    """A connection whose answer begins in time: a byte now and then would keep it waiting."""

    response_class = _Answer

    def getresponse(self) -> http.client.HTTPResponse:
        """Return the answer, once its headers are here."""
        ended = threading.Event()
        late = threading.Timer(_PATIENCE, self._end, [ended])
        late.start()
        try:
            response = super().getresponse()
        finally:
            late.cancel()
        if ended.is_set():  # and the headers may be taken for whole
            response.close()
            raise TimeoutError("its answer did not begin in time")
        return response

    def _end(self, ended: threading.Event) -> None:
        ended.set()
        _shut(self.sock)


class _Encrypted(_Plain, http.client.HTTPSConnection):
    """The same, by HTTPS."""


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Plain, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Encrypted, req)


def _opener() -> urllib.request.OpenerDirector:
    """Return what asks servers by HTTP and HTTPS, and opens neither files nor anything else."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(),
        _Https(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _keep(
    response: _Answer,
    part: Path,
    start: int,
    total: int | None,
    limit: int,
    progress: Progress,
) -> int:
    """Write what comes behind the first ``start`` bytes; return where it ends."""
    since, came = time.monotonic(), 0
    with _opened(part, start) as file:
        for piece in response.pieces(None if total is None else total - start):
            start += len(piece)
            if start > limit:
                file.truncate(0)
                raise _BrokenError(f"sent more than the {limit:,} bytes that are possible")
            _write(file, piece, part)
            progress(start, total or limit)
            came += len(piece)
            if (passed := time.monotonic() - since) >= _WINDOW:
                if came < _SLOWEST * passed:
                    raise _BrokenError(f"sent less than {_SLOWEST:,} bytes a second")
                since, came = time.monotonic(), 0
    return start


def _opened(part: Path, start: int) -> FileIO:
    try:
        return FileIO(part, "ab" if start else "wb")
    except OSError as error:
        raise _unwritable(part, error) from error


def _write(file: FileIO, piece: bytes, part: Path) -> None:
    """Write past every buffer, so that a full disk is an error of the write that meets it."""
    left = memoryview(piece)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _unwritable(part, error) from error


def _unwritable(part: Path, error: OSError) -> EngramError:
    return EngramError(f"{str(part)!r} cannot be written: {error.strerror}.")
