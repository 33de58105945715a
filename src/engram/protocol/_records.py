"""What the steps of a run were made of, gathered on the device and read between tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.engine import unchecked
from engram.errors import EngramError
from engram.gradients import Mix

Steps = dict[str, NDArray[Any]]
"""By name: the task and the step within it, and every column, [S] each."""

COLUMNS = (
    "current_loss",  # l_t
    "reference_loss",  # l_ref
    "current_weight",
    "reference_weight",
    "cosine",  # of the angle between g and r
    "k1",  # l_t / l_ref
    "k2",  # |g| / |r|
    "mixture_cosine",  # of the angle between g and the step that was taken
)


class StepRecord:
    """The numbers of R runs' steps: of every ``every`` steps of a task, the last.

    A step writes into a table on the device at its own place, so that captured steps do it too
    and nothing is read back to the host; a task's table is read when the next one begins. What a
    step does not have is NaN: it read no memory, or its method forms no mixture of gradients. Of
    several reference rows it is the mean loss, the sum of the weights, and their mean's gradient.
    """

    def __init__(self, runs: int, every: int = 1) -> None:
        if every < 1:
            raise EngramError(f"record_every must be at least 1, not {every}.")
        self.every = every
        self._runs = runs
        self._table = torch.empty(0, runs, len(COLUMNS))  # of the task in hand
        self._read: list[NDArray[np.float32]] = []  # [steps, R, columns] of each task before
        self._lengths: list[int] = []  # steps of each task begun

    def begin_task(self, steps: int, device: torch.device) -> None:
        """Make room for a task of so many steps."""
        self._keep()
        places = -(-steps // self.every)
        self._lengths.append(steps)
        self._table = torch.full((places, self._runs, len(COLUMNS)), torch.nan, device=device)

    def take(self, mix: Mix, step: int, position: Tensor | None) -> None:
        """Write a step; a captured one finds its place by ``position`` [1], on the device."""
        numbers = _numbers(mix)
        if position is None:
            self._table[step // self.every] = numbers
        else:
            place = torch.div(position, self.every, rounding_mode="floor")
            with unchecked():  # one place
                self._table.index_copy_(0, place, numbers.unsqueeze(0))

    def of(self, run: int) -> Steps:
        """Return the steps of one run, task after task."""
        self._keep()
        tasks = [np.full(len(table), task) for task, table in enumerate(self._read)]
        steps = [
            np.minimum((np.arange(len(table)) + 1) * self.every, length) - 1
            for table, length in zip(self._read, self._lengths, strict=True)
        ]
        mine = np.concatenate([table[:, run] for table in self._read])
        numbered = {"task": np.concatenate(tasks), "step": np.concatenate(steps)}
        whole: Steps = {name: places.astype(np.int32) for name, places in numbered.items()}
        return whole | {name: mine[:, place].copy() for place, name in enumerate(COLUMNS)}

    def state_dict(self) -> dict[str, Any]:
        """Return what has been recorded so far, the task in hand included."""
        read = [torch.from_numpy(table) for table in self._read]
        return {"lengths": list(self._lengths), "read": read, "table": self._table.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken; the task in hand has begun again."""
        self._lengths = [int(length) for length in state["lengths"]]
        self._read = [table.cpu().numpy() for table in state["read"]]
        self._table = state["table"].to(self._table.device, copy=True)

    def _keep(self) -> None:
        if len(self._table):
            self._read.append(self._table.cpu().numpy())
            self._table = self._table[:0]


def _numbers(mix: Mix) -> Tensor:
    """Return the columns of a step, [R, columns]."""
    losses, weights = mix.losses, mix.weights  # [R, rows]
    nothing = torch.full_like(losses[:, 0], torch.nan)
    if losses.shape[1] == 1:
        reference, added = nothing, nothing
    else:
        reference, added = losses[:, 1:].mean(1), weights[:, 1:].sum(1)
    angles = [nothing] * 3 if mix.gram is None else _angles(mix.gram, weights)
    cosine, k2, mixture = angles
    columns = [losses[:, 0], reference, weights[:, 0], added]
    columns += [cosine, losses[:, 0] / reference, k2, mixture]
    return torch.stack(columns, 1).float()


def _angles(gram: Tensor, weights: Tensor) -> list[Tensor]:
    """Return cos(g, r), |g| / |r| and cos(g, weights @ rows), [R] each."""
    length = gram[:, 0, 0].sqrt()
    reference = gram[:, 1:, 1:].mean((1, 2)).sqrt()
    products = torch.einsum("rij,rj->ri", gram, weights)  # of each row with the step
    step = (products * weights).sum(1).sqrt()
    cosine = gram[:, 0, 1:].mean(1) / length / reference
    return [cosine, length / reference, products[:, 0] / length / step]
