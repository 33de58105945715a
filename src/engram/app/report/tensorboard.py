"""Results for TensorBoard: scalars after each task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engram import metrics
from engram.app.report.measures import accuracy_matrix
from engram.app.report.summary import Summary
from engram.app.runs import Row
from engram.errors import EngramError


def check_tensorboard() -> Any:  # noqa: ANN401 (a class of an optional library)
    """Return what writes for TensorBoard, or say how to install it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise EngramError(
            "TensorBoard is not installed: pip install 'engram-torch[tensorboard]'."
        ) from None
    return SummaryWriter


def check_log_folder(folder: Path) -> None:
    """Refuse a folder that nothing can be written to, or that cannot be made; nothing stays."""
    place = folder.absolute()
    try:
        while not _is_there(place):
            place = place.parent
        with TemporaryDirectory(dir=place):
            pass
    except OSError as error:
        raise EngramError(
            f"Nothing can be written for TensorBoard in {str(folder)!r}: {error.strerror}."
        ) from error


def _is_there(path: Path) -> bool:
    """Whether there is anything of this name, be it a link that leads nowhere."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def write_scalars(rows: Iterable[Row], folder: Path) -> int:
    """Write each run to a folder of its own, once; return how many had none yet."""
    writer_class, written = check_tensorboard(), 0
    for row in rows:
        setting = Summary((row,)).setting
        name = f"{row.identity['method']}-seed-{row.seed}-{row.address[:10]}"
        place = folder / setting.slug / name
        if place.exists():
            continue
        with writer_class(str(place)) as writer:
            for scalar, value, task in _scalars(row):
                writer.add_scalar(scalar, value, task)
        written += 1
    return written


def _scalars(row: Row) -> Iterator[tuple[str, float, int]]:
    """Yield what was measured after each task, in the units of the tables."""
    matrix = accuracy_matrix(row)
    for task in range(len(matrix)):
        seen = [line[: task + 1] for line in matrix[: task + 1]]
        if any(map(math.isnan, seen[-1])):  # joint training, or a run that diverged
            continue
        yield "average accuracy", 100 * float(metrics.average_accuracy(seen)), task + 1
        yield "accuracy on the new task", 100 * seen[-1][-1], task + 1
        forgotten = float(metrics.forgetting(seen))
        if math.isfinite(forgotten):  # after one task there is nothing to forget
            yield "forgetting", forgotten, task + 1
