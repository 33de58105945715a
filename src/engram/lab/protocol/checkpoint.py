"""A run saved on its way: when, where, as which bytes, and how it is found again.

A checkpoint is a safetensors file that knows its own checksum: a JSON document in its metadata, and
tensors beside it. Nothing in it is unpickled. It is written whole or not at all, and the one before
it stays until the next one is written.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.files import leftovers, replacement

Json: TypeAlias = Any
Tensors: TypeAlias = dict[str, Tensor]

FORMAT = "engram-checkpoint"
VERSION = 1
SUFFIX = ".safetensors"

_PREVIOUS = f".previous{SUFFIX}"
_NO_DIGEST = b"0" * 64
_MARK = b'"checksum":"'  # inside of a JSON text its quotes would be escaped
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Paused(Exception):  # noqa: N818 (nothing is wrong)
    """Raised by a run that was asked to pause; its checkpoint holds all it had done."""


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Checkpoint:
    """A place for one run: a file, and beside it the one written before.

    The run is saved at the first step that ends ``every`` seconds after the last time, by
    ``clock``. What there is to say (a damaged file, a full disk) goes to ``message``, a line at a
    time. ``remove`` it once the outcome is stored.
    """

    Paused: ClassVar[type[Exception]] = Paused  # for those who are given the class alone

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        message: Callable[[str], None] = _to_stderr,
    ) -> None:
        if not isinstance(path, str | os.PathLike) or Path(path).suffix != SUFFIX:
            raise EngramError(f"path must end in {SUFFIX} for a checkpoint, not {shown(path)}.")
        if not isinstance(every, int | float) or not every >= 0:
            raise EngramError(f"every must be at least 0 seconds, not {shown(every)}.")
        self.path, self.every, self.clock, self.message = Path(path), every, clock, message
        self.last: str | None = None  # of which step the last one is, in words
        self.paused = False
        self._before = self.clock()
        self._complaint = ""

    def pause(self) -> None:
        """Let the run save itself when the current step ends, and stop with `Paused`.

        A signal handler may call it.
        """
        self.paused = True

    def due(self) -> bool:
        """Whether the run is to be saved now. A clock that went backwards says so too."""
        return self.paused or not 0 <= self.clock() - self._before < self.every

    def save(self, run: Mapping[str, Any], state: Mapping[str, Any], where: str) -> None:
        """Save the state of a run, which is ``where`` in words; the one before is kept beside it.

        A disk that takes no more stops no run: it is said, and tried again the next time.
        """
        contents = Contents({"run": run, "where": where, "torch": torch.__version__}, {})
        contents.document["state"] = encode(dict(state), "state", contents.tensors)
        try:
            write(self.path, contents)
        except OSError as error:
            kept = f"that of {self.last} is kept" if self.last else "there is none before it"
            self._complain(f"The checkpoint could not be saved: {error}; {kept}.")
        else:
            self.last, self._complaint = where, ""
        self._before = self.clock()

    def load(self, run: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the state of this very run, or None where there is none; refuse another's.

        Where the newest file is damaged, the one before it is taken.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            remove_partial(self.path)
        except (OSError, ValueError) as error:  # a value: no name for a file
            raise EngramError(
                f"No checkpoint can be saved as {str(self.path)!r}: {error}."
            ) from error
        contents = newest(self.path, self.message)
        if contents is None:
            return None
        document = contents.document
        self._check(_with_each(document["run"]), _with_each(run))
        if document["torch"] != torch.__version__:
            self.message(
                f"The checkpoint is of torch {document['torch']}: with {torch.__version__} the run "
                "may end in other bits."
            )
        state: dict[str, Any] = decode(document["state"], contents.tensors)
        self.last, self._before = document["where"], self.clock()
        return state

    @staticmethod
    def peek(path: Path) -> Mapping[str, Any] | None:
        """Return which run a path has a checkpoint of; None if none that can be read."""
        for place in (path, previous_of(path)):
            with suppress(EngramError, OSError):
                described: Mapping[str, Any] = read_run(place).document["run"]
                return _with_each(described)
        return None

    @staticmethod
    def saved_in(folder: Path) -> list[Path]:
        """Return the paths of all checkpoints in a folder."""
        return saved_in(folder)

    def remove(self) -> None:
        """Remove it: the outcome is stored."""
        remove(self.path)

    def _check(self, held: Mapping[str, Any], run: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another run, and name what is different."""
        for name in {**run, **held}:
            mine, theirs = run.get(name), held.get(name)
            if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
                self._check(theirs, mine)
            elif name == "identities" and mine and theirs:
                for one, other in zip(theirs, mine, strict=True):  # there are as many seeds
                    self._check(one, other)
            elif mine != theirs:
                raise EngramError(
                    f"The checkpoint {str(self.path)!r} is of another run: its {name} is "
                    f"{shown(theirs)}, not {shown(mine)}."
                )

    def _complain(self, sentence: str) -> None:
        if sentence != self._complaint:  # the same is not said every minute
            self.message(sentence)
        self._complaint = sentence


def _with_each(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run with an identity for each seed: where all are alike there is one."""
    each = run.get("identities") or [run["identity"]] * len(run["seeds"])
    return {**{name: run[name] for name in run if name != "identities"}, "identities": each}


def write(path: Path, contents: Contents) -> None:
    """Write a checkpoint beside the one that is there, which `previous_of` names from then on.

    At every moment one of the two is whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement(path, 0o600) as part:  # it may hold examples: they are its owner's alone
        _write_pieces(part, to_pieces(contents))
        with suppress(FileNotFoundError):  # the first one has none before it
            path.replace(previous_of(path))


def read(path: Path) -> Contents:
    """Return what `write` wrote; a DamagedError if it is not whole, an EngramError if not ours."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # a value: no name for a file
        raise EngramError(f"The checkpoint {str(path)!r} cannot be read: {error}.") from error
    return from_bytes(path, data)


def read_run(path: Path) -> Contents:
    """Return what `read` does if it is of a run, and says which."""
    contents = read(path)
    document = contents.document if isinstance(contents.document, dict) else {}
    run, state = document.get("run"), document.get("state")
    if (
        not (isinstance(run, dict) and isinstance(run.get("identity"), dict))
        or not isinstance(run.get("seeds"), list)
        or not _is_for_each(run.get("identities", []), len(run["seeds"]))
        or not (isinstance(state, dict) and state.keys() == {"dict"})
        or not all(_is_line(document.get(name)) for name in ("where", "torch"))
    ):
        raise EngramError(f"{str(path)!r} is not the checkpoint of a run.")
    return contents


def _is_for_each(identities: object, runs: int) -> bool:
    """Whether it is one for each run, or none, as for runs that are alike."""
    some = identities if isinstance(identities, list) else [None]
    return len(some) in (0, runs) and all(isinstance(one, dict) for one in some)


def _is_line(text: object) -> bool:
    return isinstance(text, str) and text.isprintable()  # it is shown to the user


def newest(path: Path, message: Callable[[str], None]) -> Contents | None:
    """Return the newest checkpoint that is whole, and give it the first place; name the others."""
    damaged = False
    for place in (path, previous_of(path)):
        try:
            contents = read_run(place)
        except FileNotFoundError:
            continue
        except DamagedError as error:
            damaged = True
            message(str(error))
            continue
        if place != path:  # or else the next one saved would push out the good one
            place.replace(path)
        if damaged:
            message(f"The one before it, of {contents.document['where']}, is taken.")
        return contents
    if damaged:
        message("No checkpoint before it is whole: the run starts anew.")
    return None


def previous_of(path: Path) -> Path:
    """Return where the checkpoint before the last one is."""
    return path.with_suffix(_PREVIOUS)


def saved_in(folder: Path) -> list[Path]:
    """Return the paths that checkpoints in a folder are saved under, be it the one before alone."""
    names = {path.name.replace(_PREVIOUS, SUFFIX) for path in folder.glob(f"*{SUFFIX}")}
    return sorted(folder / name for name in names)


def remove(path: Path) -> None:
    """Remove a checkpoint, the one before it, and what a killed process has left of a third.

    The checkpoint itself goes last: by it whoever is killed in here is found out afterwards.
    """
    remove_partial(path)
    for each in (previous_of(path), path):
        each.unlink(missing_ok=True)


def remove_partial(path: Path) -> None:
    """Remove what a killed process has left half-written."""
    for left in leftovers(path):
        left.unlink(missing_ok=True)


def _write_pieces(path: Path, pieces: Sequence[bytes | memoryview]) -> None:
    """Fill an empty file, by calls of the system in which tests can let it fail."""
    with path.open("wb") as file:
        for piece in pieces:
            left = memoryview(piece)
            while left:
                left = left[os.write(file.fileno(), left) :]


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


def encode(value: object, name: str, tensors: Tensors) -> Json:
    """Return a state as JSON; its tensors and arrays go to ``tensors``, by their place in it.

    A state is made of dicts with text for keys, lists, tuples, tensors, arrays and what JSON
    holds. Every container is one entry that names its type. A named tuple comes back as a tuple.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor):
        return {"tensor": _put(value, name, tensors)}
    if isinstance(value, np.ndarray):
        return {"array": _put(_from_numpy(value, name), name, tensors)}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = value.items()
        return {"dict": {key: encode(item, f"{name}/{key}", tensors) for key, item in items}}
    raise _cannot(name, type(value).__name__)


def decode(node: Json, tensors: Tensors) -> Any:  # noqa: ANN401
    """Return the state that `encode` described."""
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, dict) and len(node) == 1:
        ((kind, content),) = node.items()
        if kind == "dict" and isinstance(content, dict):
            return {key: decode(item, tensors) for key, item in content.items()}
        if kind in ("list", "tuple") and isinstance(content, list):
            items = [decode(item, tensors) for item in content]
            return items if kind == "list" else tuple(items)
        if kind in ("tensor", "array") and isinstance(content, str) and content in tensors:
            return tensors[content] if kind == "tensor" else tensors[content].numpy()
        if kind == "float" and isinstance(content, str) and content in _NOT_FINITE:
            return _NOT_FINITE[content]
    raise EngramError(f"A state has no entry like {str(node)[:60]!r}.")


def _put(tensor: Tensor, name: str, tensors: Tensors) -> str:
    if name in tensors:  # a key with a slash in it could lead here
        raise EngramError(f"Two tensors of a method's state have the name {name!r}.")
    if tensor.is_meta or tensor.layout is not torch.strided:
        raise _cannot(name, f"tensor on {tensor.device.type} with {tensor.layout}")
    # A copy: a file holds no two tensors that share memory, and a view of some may be long.
    tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()
    return name


def _from_numpy(array: np.ndarray[Any, Any], name: str) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
    except TypeError:
        raise _cannot(name, f"array of {array.dtype}") from None


def _cannot(name: str, kind: str) -> EngramError:
    return EngramError(
        f"The state of a method must be of dicts, lists, tensors, arrays and JSON values to be "
        f"saved, but {name} is a {kind}."
    )
