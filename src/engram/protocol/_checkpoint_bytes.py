"""A checkpoint as the bytes of a safetensors file that knows its own checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from engram.errors import EngramError, shown
from engram.protocol._checkpoint_state import Json, Tensors

FORMAT = "engram-checkpoint"
VERSION = 1

_NO_DIGEST = b"0" * 64
_MARK = b'"checksum":"'  # inside of a JSON text its quotes would be escaped


class DamagedError(EngramError):
    """A file that is not what was written."""


class Contents(NamedTuple):
    """What a checkpoint holds."""

    document: Json
    tensors: Tensors


def to_pieces(contents: Contents) -> Sequence[bytes | memoryview]:
    """Return the file, in pieces. Its checksum is of every byte of it, itself read as zeros."""
    from safetensors.torch import save

    document = json.dumps(contents.document, separators=(",", ":"), allow_nan=False)
    metadata = {"format": FORMAT, "version": str(VERSION), "document": document}
    data = save(contents.tensors, {**metadata, "checksum": _NO_DIGEST.decode()})
    before, after = _around_digest(data)
    return before, hashlib.sha256(data).hexdigest().encode(), after


def from_bytes(path: Path, data: bytes) -> Contents:
    """Return what a file holds; a DamagedError if it is not whole, an EngramError if not ours."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    metadata = _checked_metadata(path, data)
    version = metadata.get("version")
    if version not in [str(known + 1) for known in range(VERSION)]:
        raise EngramError(
            f"The checkpoint {str(path)!r} has format version {shown(version)}, and this Engram "
            f"reads versions up to {VERSION}: use a newer one, or remove the file."
        )
    try:
        return Contents(json.loads(metadata["document"]), load(data))
    except (KeyError, ValueError, RecursionError, SafetensorError) as error:
        raise EngramError(f"The checkpoint {str(path)!r} is not one: {error}.") from error


def _checked_metadata(path: Path, data: bytes) -> Mapping[str, str]:
    """Return what the file says of itself, once its checksum has been found right.

    The checksum stands there in every version of the format.
    """
    try:
        before, after = _around_digest(data)
    except ValueError:
        if _is_foreign(data):
            raise EngramError(f"{str(path)!r} is not a checkpoint.") from None
        raise DamagedError(f"{str(path)!r} is not a checkpoint, or is damaged.") from None
    digest = hashlib.sha256(before)
    digest.update(_NO_DIGEST)
    digest.update(after)
    given = data[len(before) : len(before) + len(_NO_DIGEST)]
    if given != digest.hexdigest().encode():
        raise DamagedError(f"The checkpoint {str(path)!r} is damaged: its checksum does not match.")
    metadata = _metadata(data)
    if metadata.get("format") != FORMAT:
        raise EngramError(f"{str(path)!r} is not a checkpoint.")
    return metadata


def _around_digest(data: bytes) -> tuple[memoryview, memoryview]:
    """Return what is before the checksum and what is after it; a ValueError if there is none."""
    place = data.index(_MARK, 8, _header_end(data)) + len(_MARK)
    return memoryview(data)[:place], memoryview(data)[place + len(_NO_DIGEST) :]


def _header_end(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def _metadata(data: bytes) -> Mapping[str, str]:
    try:
        found = json.loads(data[8 : _header_end(data)])["__metadata__"]
    except (LookupError, TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_foreign(data: bytes) -> bool:
    """Whether this is a sound file of another kind, rather than a damaged one of ours."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        load(data)
    except (SafetensorError, ValueError):
        return False
    return _metadata(data).get("format") != FORMAT
