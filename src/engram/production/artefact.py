"""The artefact: a folder of versions, which of them answers, and a lock. Nothing is pickled.

    artefact.json       what the folder is, and the key of its hashes
    current             which version answers, and every move of this pointer
    erasures.jsonl      what was erased, as keyed hashes
    versions/0003/      a version each; the folder appears whole or not at all
    work/               an update that has begun

A version is built in a hidden folder and renamed; ``current`` is one file that is replaced. So
whatever kills a process, each is as it was before or as it is after.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from engram.errors import EngramError, shown
from engram.files import replacement

FORMAT, FORMAT_VERSION = "engram-artefact", 1
Document = dict[str, Any]

_DIGITS = 16  # bytes of a keyed hash
_FACTS = (
    "parent",
    "verdict",
    "how",
    "when",
    "data",
    "period",
    "examples",
    "exam",
    "training",
    "weights",
    "files",
    "erasures",
    "notes",
)
_NUMBER = re.compile(r"\d{4,9}")


class LockedError(EngramError):
    """Another process is changing the artefact: try again when it has ended."""


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document with its checksum, whole or not at all, for its owner's eyes."""
    signed = {**document, "sha256": _checksum(document)}
    write_text(path, json.dumps(signed, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all, for its owner's eyes."""
    try:
        with replacement(path, 0o600) as part:
            part.write_text(text, "utf-8")
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from error


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: dict[str, str] | None = None,
    mode: int = 0o600,
) -> None:
    """Write tensors whole or not at all, for their owner's eyes unless the mode says otherwise."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    held = {name: each.detach().cpu().clone().contiguous() for name, each in tensors.items()}
    try:
        with replacement(path, mode) as part:
            save_file(held, part, metadata)
    except (OSError, SafetensorError) as error:
        raise EngramError(f"{str(path)!r} cannot be written: {error}.") from error


def read_json(path: Path) -> Document:
    """Return the document that `write_json` wrote, or refuse what is not whole."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.pop("sha256", None) != _checksum(document):
        raise EngramError(
            f"{str(path)!r} is damaged: it does not have the checksum of its content."
        )
    return document


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Say which file it is that lacks what is being read from it, or has something else there."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        if isinstance(error, EngramError):
            raise
        raise EngramError(f"{str(path)!r} is damaged: {type(error).__name__}, {error}.") from error


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error


class Version:
    """One version: a folder, and what is known of it.

    ``facts`` say where it comes from: ``parent``, ``how`` it was made, the ``data`` with its
    digest, the settings, the seed, the ``verdict`` of the gate, the code's version, the device and
    the time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = int(folder.name)
        self.facts = read_json(folder / "version.json")
        lacking = [name for name in _FACTS if name not in self.facts]
        if lacking:
            raise EngramError(
                f"{str(folder / 'version.json')!r} is damaged: it does not say {lacking[0]}."
            )

    @property
    def parent(self) -> int | None:
        """The version that it was made from, None for the first."""
        parent: int | None = self.facts["parent"]
        return parent

    @property
    def verdict(self) -> str:
        """What the gate said of it: accepted, rejected or undecided."""
        return str(self.facts["verdict"])

    def report(self) -> Document | None:
        """Return its retention report; the first version has none."""
        path = self.folder / "report.json"
        return read_json(path) if path.exists() else None


class Artefact:
    """A model in production: `versions`, which of them is `current`, and who may change that."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if not (self.folder / "artefact.json").is_file():
            raise EngramError(
                f"{str(self.folder)!r} is no artefact: `engram train DATA --out FOLDER` makes one."
            )
        document = read_json(self.folder / "artefact.json")
        if document.get("format") != FORMAT:
            raise EngramError(f"{str(self.folder)!r} is no artefact.")
        with damage_named(self.folder / "artefact.json"):
            if document["version"] > FORMAT_VERSION:
                raise EngramError(
                    f"The artefact {str(self.folder)!r} has format version {document['version']}, "
                    f"and this Engram reads versions up to {FORMAT_VERSION}; install a newer one."
                )
            self._key = bytes.fromhex(document["key"])

    @classmethod
    def create(cls, folder: str | os.PathLike[str]) -> Artefact:
        """Make an artefact without a version, or return one of which no version answers yet."""
        path = Path(folder)
        if not (path / "artefact.json").exists():
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise EngramError(f"{str(path)!r} is there already, and is no artefact.")
            document = {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "created": now(),
                "key": secrets.token_hex(32),
            }
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise EngramError(f"{str(path)!r} cannot be made: {error.strerror}.") from error
            write_json(path / "artefact.json", document)
        found = cls(path)
        if found.moves():
            raise EngramError(
                f"{str(path)!r} is an artefact with versions already: `engram update` goes on from "
                "them, or give another --out."
            )
        return found

    def __repr__(self) -> str:
        return f"Artefact({str(self.folder)!r})"

    def hashed(self, kind: str, text: str) -> bytes:
        """Return the artefact's own hash of a text, 16 bytes: without its key it says nothing."""
        data = f"{kind}\0{text}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._key, digest_size=_DIGITS).digest()

    def versions(self) -> list[Version]:
        """Return all versions, accepted or not, the oldest first."""
        place = self.folder / "versions"
        found = (
            [each for each in place.iterdir() if _NUMBER.fullmatch(each.name)]
            if (place.is_dir())
            else []
        )
        return [Version(each) for each in sorted(found, key=lambda each: int(each.name))]

    def version(self, number: int) -> Version:
        """Return one version."""
        folder = self.folder / "versions" / f"{number:04}"
        if not folder.is_dir():
            known = ", ".join(str(each.number) for each in self.versions()) or "none"
            raise EngramError(f"There is no version {shown(number)}; there are {known}.")
        return Version(folder)

    def moves(self) -> list[Document]:
        """Return every move of ``current``, the oldest first."""
        path = self.folder / "current"
        if not path.exists():
            return []
        moves = read_json(path).get("moves")
        if not isinstance(moves, list) or not moves or not all(map(_is_move, moves)):
            raise EngramError(f"{str(path)!r} is damaged: it has no list of moves.")
        return moves

    @property
    def current(self) -> Version:
        """The version that answers."""
        moves = self.moves()
        if not moves:
            raise EngramError(
                f"{str(self.folder)!r} has no version that answers yet: give `engram train` again, "
                "which goes on from where it was stopped."
            )
        return self.version(moves[-1]["version"])

    def point(self, number: int, how: str, reason: str = "") -> None:
        """Let ``current`` be another version."""
        moves = self.moves()
        move = {"version": number, "when": now(), "how": how, "reason": reason}
        write_json(self.folder / "current", {"moves": [*moves, move]})

    @property
    def work(self) -> Path:
        """Where an update that has begun lies."""
        return self.folder / "work"

    def next_number(self) -> int:
        """Return the number of the next version."""
        return max((each.number for each in self.versions()), default=0) + 1

    @contextmanager
    def building(self, number: int) -> Iterator[Path]:
        """Yield a folder that becomes version ``number`` at the end, whole, or is gone."""
        place = self.folder / "versions"
        place.mkdir(exist_ok=True)
        self.remove_leftovers()
        part = place / f".{number:04}.partial"
        part.mkdir()
        try:
            yield part
            _sync(part)
            part.rename(place / f"{number:04}")
            _sync(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Remove what killed processes have left; call it with the `lock`."""
        for part in self.folder.rglob(".*.partial*"):
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the artefact, or raise `LockedError`; whatever ends the process lets it go."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise EngramError(
                f"{str(self.folder)!r} cannot be written: {error.strerror or error}."
            ) from error
        try:
            if not _locked(descriptor):
                raise LockedError(
                    f"{str(self.folder)!r} is being changed by another process: try again when it "
                    "has ended."
                )
            yield
        finally:
            os.close(descriptor)


def _is_move(move: object) -> bool:
    return isinstance(move, dict) and type(move.get("version")) is int and move["version"] > 0


def _locked(descriptor: int) -> bool:
    """Take a lock on an open file, and say whether nobody had it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync(folder: Path) -> None:
    """Write a folder's names to the disk for good, where the system has a way to ask for it."""
    with suppress(OSError, AttributeError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
