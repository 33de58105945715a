"""A step's whole mixture in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients._loss import check_loss, compared_value
from engram.gradients._mix import Mix, check_rule, mix_rows, weigh
from engram.gradients._rows import Row, clear_gradients
from engram.rules import Rule


def backward(
    losses: Sequence[Tensor],
    parameters: Iterable[Tensor],
    rule: Rule,
    *,
    values: Sequence[Tensor | float] | None = None,
) -> Mix:
    """Set ``.grad`` to the rule's mixture of the gradients of ``losses``, the current one first.

    Where the rule needs no Gram matrix this is one backward pass of the re-weighted loss
    ``(weights * losses).sum()``, else one pass a loss. The losses may share a graph.

    Args:
        losses: the current loss, then the reference losses.
        parameters: the vector that is differentiated; what their ``.grad`` held is replaced.
        rule: how the rows are weighed.
        values: what the rule compares, >= 0 each, where it is not the losses themselves.

    >>> import torch
    >>> from engram.rules import MEGA1
    >>> weight = torch.tensor([2.0], requires_grad=True)
    >>> loss, memory_loss = (weight - 1).square().sum(), weight.square().sum()
    >>> backward([loss, memory_loss], [weight], MEGA1()).weights
    tensor([1., 4.])
    >>> weight.grad
    tensor([18.])
    """
    check_rule(rule)
    unique = _unique(parameters)
    rows = _empty_rows(losses, values)
    compared = [row.value for row in rows]
    if rule.needs_gram:
        for index, (row, loss) in enumerate(zip(rows, losses, strict=True)):
            row.add_gradient(loss, unique, retain_graph=index < len(rows) - 1)
        return mix_rows(rule, compared, [row.gradient for row in rows], unique)
    compared_losses = torch.stack(compared)
    weights = weigh(rule, compared_losses, None)
    clear_gradients(unique)
    terms = [loss.reshape(()) for loss in losses]
    torch.autograd.backward(torch.dot(torch.stack(terms).to(weights.dtype), weights))
    return Mix(compared_losses, None, weights)


def _unique(parameters: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, Tensor):  # iterating over one gives its rows, which are no leaves
        raise EngramError("parameters must be a collection of tensors, not one tensor.")
    return list(dict.fromkeys(parameters))


def _empty_rows(losses: Sequence[Tensor], values: Sequence[Tensor | float] | None) -> list[Row]:
    if not losses:
        raise EngramError("losses must hold the current loss at least, and it is empty.")
    if values is not None and len(values) != len(losses):
        raise EngramError(
            f"values must be as many as losses, {len(losses)}, and there are {len(values)}."
        )
    for loss in losses:
        check_loss(loss)
    compared = [None] * len(losses) if values is None else values
    return [Row(compared_value(*pair)) for pair in zip(losses, compared, strict=True)]
