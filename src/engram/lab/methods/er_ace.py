"""ER-ACE: replay in which the current batch does not push other classes away."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.gradients import Mix
from engram.lab.engine import Batch
from engram.lab.methods.method import Setup
from engram.lab.methods.registry import LEARNING_RATES, Entry, register
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings
from engram.rules import Equal


class ErAce(Replay):
    """Replay with an asymmetric cross-entropy (Caccia et al. 2022).

    The current batch's loss is among the classes that are in that batch; the memory's is among all.
    So a class that has just come does not raise itself over those that are remembered, whose
    outputs only replay moves. As long as nothing is remembered, the current batch's loss is the
    plain one. Both losses weigh the same.
    """

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:
        """Take a step on the current batch, among its own classes, and on the memory's."""
        if self.bank.reference(step) is not None:
            batch = among_its_own(batch, self.stream.classes)
        return super().observe(step, stored, batch)


def among_its_own(batch: Batch, classes: int) -> Batch:
    """Return the batch with each example classified among the batch's own classes alone."""
    every = torch.arange(classes, device=batch.labels.device)
    present = (batch.labels.unsqueeze(-1) == every).any(1, keepdim=True)
    mask = present.expand(*batch.labels.shape, classes)
    return batch._replace(outputs=mask if batch.outputs is None else mask & batch.outputs)


def _build(setup: Setup, settings: ReplaySettings) -> ErAce:
    return ErAce(setup, settings, Equal())


register(
    Entry("er-ace", _build, ReplaySettings, PRESETS, LEARNING_RATES, varies=tuple(LEARNING_RATES))
)
