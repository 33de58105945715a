"""Losses that are not finite: noticed without a look at the device in every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from engram.engine import unchecked
from engram.gradients import Mix
from engram.methods import Method
from engram.protocol._checkpoint import Checkpoint
from engram.protocol._record import Failure, Record
from engram.protocol._spec import Spec
from engram.protocol._stack import told_apart
from engram.streams import Batch, Stream


class Watch:
    """Keeps the largest loss of every step of the task in hand, on the device, [R, steps].

    A step adds one small kernel or two, and a captured step nothing that the host waits for. Who
    looks finds the first step of each run whose loss is not finite, whenever that is.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        method: Method,
        stream: Stream,
        record: Record,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._specs, self._method, self._record = specs, method, record
        self._seeds, self._checkpoint = stream.seeds, checkpoint
        self._losses = method.parameters.new_zeros(0, 0)

    def begin(self, steps: int) -> Method:
        """Watch a task of so many steps; return the method that is to take them."""
        parameters = self._method.parameters
        self._losses = parameters.new_zeros(len(parameters), steps)
        return cast(Method, _Watched(self._method, self.take))

    def take(self, mix: Mix, step: int, position: Tensor | None) -> None:
        """Keep the losses of a step; a captured one finds its place by ``position`` [1]."""
        worst = mix.losses.amax(-1) if mix.losses.shape[-1] > 1 else mix.losses[:, 0]  # or NaN
        worst = worst.to(self._losses.dtype)
        if position is None:
            self._losses[:, step] = worst
        else:
            with unchecked():  # one place
                self._losses.index_copy_(1, position, worst.unsqueeze(1))

    def alarm(self, step: int) -> bool:
        """Whether the step just taken may have a loss that is not finite; a GPU is not asked."""
        return not self._losses.is_cuda and not math.isfinite(float(self._losses[:, step].sum()))

    def all_diverged(self, task: int, *, ended: bool = False) -> bool:
        """Note the runs that have diverged in a task by now; return whether none is left.

        When a task has ended the weights are looked at as well: no loss has seen its last step.
        """
        length = self._losses.shape[1]
        bad = ~torch.isfinite(self._losses)
        if ended:
            weights = torch.isfinite(self._method.parameters).all(-1, keepdim=True)
            bad = torch.cat([bad, ~weights], 1)
        some, first = bad.any(1).tolist(), bad.int().argmax(1).tolist()
        for run, step in enumerate(first):
            if some[run] and self._record.failures[run] is None:
                what = "loss" if step < length else "weights"
                self._note(run, task, step, f"The {what} became non-finite")
        return all(failure is not None for failure in self._record.failures)

    def _note(self, run: int, task: int, step: int, what: str) -> None:
        length = self._losses.shape[1]
        reason = (
            f"{what} in task {task + 1} of {self._specs[0].tasks}, at step "
            f"{min(step + 1, length)} of {length} ({told_apart(self._specs, run)})."
        )
        self._record.failures[run] = Failure(task, step, reason)
        if self._checkpoint is not None:
            last = self._checkpoint.last
            good = f"The last good checkpoint is of {last}: {self._checkpoint.path}"
            none = "There is no checkpoint before it."
            self._checkpoint.tell(f"Seed {self._seeds[run]}: {reason} {good if last else none}")


class _Watched:
    """A method whose steps are noted; otherwise itself."""

    def __init__(self, method: Method, take: Callable[[Mix, int, Tensor | None], None]) -> None:
        self._method, self._take = method, take
        self._position: Tensor | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._method, name)

    def locate(self, position: Tensor | None) -> None:
        self._position = position
        self._method.locate(position)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:
        mix = self._method.observe(step, stored, batch)
        self._take(mix, step, self._position)
        return mix
