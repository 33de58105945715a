"""A row is one loss's value and its gradient, filled by autograd itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_

import torch
from torch import Tensor
from torch.optim import Optimizer

from engram.gradients._matrix import Gradient


@dataclass
class Row:
    """The value and the gradient of one loss, over the parameters that there were."""

    value: Tensor
    parameters: Sequence[Tensor] = ()
    gradient: Gradient = ()

    def add_gradient(
        self, loss: Tensor, parameters: Sequence[Tensor], *, retain_graph: bool = False
    ) -> None:
        """Add ``loss``'s gradient to the row, and leave every parameter's ``.grad`` None.

        Autograd itself accumulates: it adds to the row's buffers where there are some and hands
        over its own where there are none, so a row costs no copy.
        """
        for parameter, gradient in zip(parameters, self.over(parameters), strict=True):
            parameter.grad = gradient
        try:
            torch.autograd.backward(loss, retain_graph=retain_graph)
            self.parameters, self.gradient = parameters, [each.grad for each in parameters]
        finally:
            clear_gradients(parameters)

    def over(self, parameters: Sequence[Tensor]) -> Gradient:
        """Return the gradient over ``parameters``, 0 for those that are new."""
        if not self.parameters:
            return [None] * len(parameters)
        if len(parameters) == len(self.parameters) and all(map(is_, parameters, self.parameters)):
            return self.gradient
        known = {id(each): g for each, g in zip(self.parameters, self.gradient, strict=True)}
        return [known.get(id(each)) for each in parameters]

    def shares_memory(self, other: Row) -> bool:
        """Tell whether the first parameter that both reach has one gradient in both."""
        for own, their in zip(self.gradient, other.over(self.parameters), strict=True):
            if own is not None and their is not None:
                return own.data_ptr() == their.data_ptr()
        return False


def optimized(optimizer: Optimizer) -> list[Tensor]:
    """Return what an optimiser holds, each parameter once: it takes one twice with a warning."""
    groups = optimizer.param_groups
    return list({id(each): each for group in groups for each in group["params"]}.values())


def clear_gradients(parameters: Iterable[Tensor]) -> None:
    """Set ``.grad`` to None, of frozen parameters too: an optimiser follows a stale one."""
    for parameter in parameters:
        parameter.grad = None
