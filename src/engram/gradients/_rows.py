"""A row is one loss's value and its gradient, filled by autograd itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_

import torch
from torch import Tensor
from torch.optim import Optimizer

from engram.gradients._matrix import Gradient

CURRENT = "current"
"""The name of the row of the batch at hand."""


@dataclass
class Row:
    """The value and the gradient of one loss, over the parameters that there were."""

    value: Tensor
    parameters: Sequence[Tensor] = ()
    gradient: Gradient = ()

    def add_gradient(self, loss: Tensor, parameters: Sequence[Tensor]) -> None:
        """Add ``loss``'s gradient to the row.

        Autograd itself accumulates: it adds to the row's buffers where there are some and hands
        over its own where there are none, so a row costs no copy.
        """
        self.gradient = differentiate(loss, parameters, self.over(parameters))
        self.parameters = parameters

    def over(self, parameters: Sequence[Tensor]) -> Gradient:
        """Return the gradient over ``parameters``, 0 for those that are new."""
        if len(parameters) == len(self.parameters) and all(map(is_, parameters, self.parameters)):
            return self.gradient
        known = {id(each): g for each, g in zip(self.parameters, self.gradient, strict=True)}
        return [known.get(id(each)) for each in parameters]


def differentiate(
    loss: Tensor,
    parameters: Sequence[Tensor],
    known: Gradient | None = None,
    *,
    retain_graph: bool = False,
) -> Gradient:
    """Return the loss's gradient, added to the ``known`` one, and leave every ``.grad`` None."""
    try:
        for place, parameter in enumerate(parameters):
            parameter.grad = None if known is None else known[place]
        torch.autograd.backward(loss, retain_graph=retain_graph)
        return [parameter.grad for parameter in parameters]
    finally:
        clear_gradients(parameters)


def optimized(optimizer: Optimizer) -> list[Tensor]:
    """Return what an optimiser holds, each parameter once: it takes one twice with a warning."""
    groups = optimizer.param_groups
    return list({id(each): each for group in groups for each in group["params"]}.values())


def clear_gradients(parameters: Iterable[Tensor]) -> None:
    """Set ``.grad`` to None, of frozen parameters too: an optimiser follows a stale one."""
    for parameter in parameters:
        parameter.grad = None
