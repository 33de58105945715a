"""The loss of R stacked runs, with its gradient at the logits."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engram.kernels import triton_works
from engram.lab.benchmarks import Batch
from engram.lab.engine.cuda_graphs import unchecked

_MOST_CLASSES = 4096  # for a kernel that holds all logits of an example at once


class Objective(Protocol):
    """A loss of the logits, and its gradient there."""

    def __call__(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return each part's loss [R, groups] and the gradient at the logits [R, B, classes]."""


def cross_entropy(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return each part's mean cross-entropy [R, groups] and the gradient at the logits.

    An example whose share of its part's mean is s has the loss −s log p(label), and the gradient
    s (p − 1) at its label and s p elsewhere.
    """
    if batch.outputs is not None:
        logits = logits.masked_fill(~batch.outputs, -torch.inf)
    elif logits.shape[-1] <= _MOST_CLASSES and triton_works(logits):
        from engram.kernels import loss

        return loss.entropies(logits, batch.labels, batch.weights, batch.groups)
    log_probabilities = torch.log_softmax(logits, -1)
    labels = batch.labels.unsqueeze(-1)
    parts = (len(logits), batch.groups, -1)
    losses = -log_probabilities.gather(-1, labels).squeeze(-1)
    gradient = log_probabilities.exp_()
    with unchecked():  # a label for each example
        gradient.scatter_add_(-1, labels, gradient.new_full((), -1.0).expand(labels.shape))
    if batch.weights is None:
        return losses.view(parts).mean(-1), gradient.mul_(batch.groups / losses.shape[1])
    weighted = (losses * batch.weights).view(parts).sum(-1)
    return weighted, gradient.mul_(batch.weights.unsqueeze(-1))
