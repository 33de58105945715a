"""A checkpoint on disk: a file that is written whole or not at all, and the one before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from engram.errors import EngramError
from engram.files import leftovers, replacement
from engram.protocol._checkpoint_bytes import Contents, DamagedError, from_bytes, to_pieces

SUFFIX = ".safetensors"
_PREVIOUS = f".previous{SUFFIX}"


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
    """Return what `read` does if it is of a run, and tells which."""
    contents = read(path)
    told = contents.document if isinstance(contents.document, dict) else {}
    run, state = told.get("run"), told.get("state")
    if (
        not (isinstance(run, dict) and isinstance(run.get("identity"), dict))
        or not isinstance(run.get("seeds"), list)
        or not _is_for_each(run.get("identities", []), len(run["seeds"]))
        or not (isinstance(state, dict) and state.keys() == {"dict"})
        or not all(_is_line(told.get(name)) for name in ("where", "torch"))
    ):
        raise EngramError(f"{str(path)!r} is not the checkpoint of a run.")
    return contents


def _is_for_each(identities: object, runs: int) -> bool:
    """Whether it is one for each run, or none, as for runs that are alike."""
    some = identities if isinstance(identities, list) else [None]
    return len(some) in (0, runs) and all(isinstance(one, dict) for one in some)


def _is_line(text: object) -> bool:
    return isinstance(text, str) and text.isprintable()  # it is told to the user


def newest(path: Path, tell: Callable[[str], None]) -> Contents | None:
    """Return the newest checkpoint that is whole, and give it the first place; tell of others."""
    damaged = False
    for place in (path, previous_of(path)):
        try:
            contents = read_run(place)
        except FileNotFoundError:
            continue
        except DamagedError as error:
            damaged = True
            tell(str(error))
            continue
        if place != path:  # or else the next one saved would push out the good one
            place.replace(path)
        if damaged:
            tell(f"The one before it, of {contents.document['where']}, is taken.")
        return contents
    if damaged:
        tell("No checkpoint before it is whole: the run starts anew.")
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
