"""What the steps of runs were made of: a file for each run, beside the store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.app.runs.store import DEFAULT_STORE
from engram.errors import EngramError
from engram.files import whole_file

_ADDRESS = re.compile("[0-9a-f]{64}")
_FORMAT = "steps-2"
_WITHOUT_CHECKSUM = "steps-1"  # as files were before


def step_records(address: str, store: Path = DEFAULT_STORE) -> dict[str, NDArray[Any]]:
    """Return what the steps of a run were made of, by name, [S] each.

    ``task`` and ``step`` say which step it was; ``current_loss``, ``reference_loss``,
    ``current_weight`` and ``reference_weight`` what was mixed; ``cosine`` is that of the angle
    between both gradients, ``k1`` the ratio of the losses and ``k2`` of the gradients' lengths,
    ``mixture_cosine`` that of the angle between the current gradient and the step. NaN stands for
    what a step does not have.
    """
    path = steps_path(address, store)
    if not _ADDRESS.fullmatch(str(address)) or not path.is_file():
        raise EngramError(
            f"There are no step records of {address!r} beside {str(store)!r}: `engram run` with "
            "`--record steps --again` makes them."
        )
    return read_steps(path, address)


def read_steps(path: Path, address: str) -> dict[str, NDArray[Any]]:
    """Return the step records of a file; refuse those of another run, and damaged ones."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            about = file.metadata() or {}
            records = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise EngramError(f"The step records {str(path)!r} cannot be read: {error}.") from error
    known = about.get("format") in (_FORMAT, _WITHOUT_CHECKSUM) and about.get("address") == address
    whole = about.get("sha256") == _digest(address, records)
    if not known or (about["format"] == _FORMAT and not whole):
        raise EngramError(
            f"The step records {str(path)!r} are damaged, or of another run: `engram run` with "
            "`--record steps --again` makes them anew."
        )
    return records


def write_steps(address: str, store: Path, steps: Mapping[str, NDArray[Any]]) -> None:
    """Write the steps of a run beside a store, whole or not at all."""
    from safetensors.numpy import save_file

    about = {"format": _FORMAT, "address": address, "sha256": _digest(address, steps)}
    with whole_file(steps_path(address, store)) as part:
        save_file(dict(steps), part, metadata=about)


def copy_steps(address: str, source: Path, target: Path) -> None:
    """Copy the steps of a run from beside one store to beside another, unless they are there."""
    if steps_path(address, source).is_file() and not steps_path(address, target).is_file():
        write_steps(address, target, step_records(address, source))


def steps_path(address: str, store: Path) -> Path:
    """Return where the steps of a run lie."""
    return steps_folder(store) / f"{address}.safetensors"


def steps_folder(store: Path) -> Path:
    """Return where the steps of all runs of a store lie."""
    return store.with_name(f"{store.stem}-steps")


def _digest(address: str, steps: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of all that a file holds: safetensors has no checksum of its own."""
    digest = hashlib.sha256(address.encode())
    for name in sorted(steps):
        values = np.ascontiguousarray(steps[name])
        digest.update(f"|{name} {values.dtype.str} {values.shape}|".encode() + values.tobytes())
    return digest.hexdigest()
