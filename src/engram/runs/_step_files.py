"""What the steps of runs were made of: a file for each run, beside the store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from engram.errors import EngramError
from engram.files import whole_file

DEFAULT_STORE = Path("engram-results/store.sqlite")
_ADDRESS = re.compile("[0-9a-f]{64}")


def step_records(address: str, store: Path = DEFAULT_STORE) -> dict[str, NDArray[Any]]:
    """Return what the steps of a run were made of, by name, [S] each.

    ``task`` and ``step`` say which step it was; ``current_loss``, ``reference_loss``,
    ``current_weight`` and ``reference_weight`` what was mixed; ``cosine`` is that of the angle
    between both gradients, ``k1`` the ratio of the losses and ``k2`` of the gradients' lengths,
    ``mixture_cosine`` that of the angle between the current gradient and the step. NaN stands for
    what a step does not have.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = steps_path(address, store)
    if not _ADDRESS.fullmatch(str(address)) or not path.is_file():
        raise EngramError(
            f"There are no step records of {address!r} beside {str(store)!r}: `engram run` with "
            "`--record steps --again` makes them."
        )
    try:
        records: dict[str, NDArray[Any]] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise EngramError(f"The step records {str(path)!r} cannot be read: {error}.") from error
    return records


def write_steps(address: str, store: Path, steps: Mapping[str, NDArray[Any]]) -> None:
    """Write the steps of a run beside a store, whole or not at all."""
    from safetensors.numpy import save_file

    with whole_file(steps_path(address, store)) as part:
        save_file(dict(steps), part, metadata={"format": "steps-1", "address": address})


def copy_steps(address: str, source: Path, target: Path) -> None:
    """Copy the steps of a run from beside one store to beside another, unless they are there."""
    if steps_path(address, source).is_file() and not steps_path(address, target).is_file():
        write_steps(address, target, step_records(address, source))


def steps_path(address: str, store: Path) -> Path:
    """Return where the steps of a run lie."""
    return store.with_name(f"{store.stem}-steps") / f"{address}.safetensors"
