"""A step's whole mixture in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.gradients._loss import check_loss, compared_value
from engram.gradients._matrix import Gradient
from engram.gradients._mix import Mix, check_rule, mix_rows, weigh
from engram.gradients._rows import clear_gradients, differentiate
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
    compared = _compared(losses, values)
    if rule.needs_gram:
        return mix_rows(rule, compared, _rows(losses, unique), unique)
    mix = weigh(rule, compared)
    clear_gradients(unique)
    shares = zip(mix.weights.unbind(), losses, strict=True)
    try:
        torch.autograd.backward(losses, [w.to(loss.dtype).view(loss.shape) for w, loss in shares])
    except BaseException:
        clear_gradients(unique)  # of a part of it, no optimiser is to take a step
        raise
    return mix


def _rows(losses: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Gradient]:
    """Differentiate each loss; their graph, which they may share, is kept up to the last."""
    *others, last = losses
    try:
        rows = [differentiate(loss, parameters, retain_graph=True) for loss in others]
    except RuntimeError as error:
        if "donated buffer" not in str(error):
            raise
        # What torch.compile makes may refuse to keep its graph: then each loss has one of its own.
        rows = [differentiate(loss, parameters) for loss in others]
    return [*rows, differentiate(last, parameters)]


def backward_each(
    losses: Iterable[tuple[Tensor, Tensor | float]], parameters: Iterable[Tensor], rule: Rule
) -> Mix:
    """Do what `backward` does for losses that come one by one: one graph is there at a time.

    Args:
        losses: pairs of a loss and the value that the rule compares, best from a generator; the
            reference losses first, the current one last.
        parameters: the vector that is differentiated; what their ``.grad`` held is replaced.
        rule: how the rows are weighed.

    >>> import torch
    >>> from engram.rules import MEGA2
    >>> weight = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> losses = ((loss, loss) for loss in (9 * weight[1], 3 * weight[0]))
    >>> backward_each(losses, [weight], MEGA2()).losses
    tensor([ 9., 36.])
    """
    check_rule(rule)
    unique = _unique(parameters)
    trained = [parameter for parameter in unique if parameter.requires_grad]
    if len(trained) < len(unique):
        clear_gradients(unique)
    values, rows = [], []
    for loss, value in losses:
        check_loss(loss)
        values.append(compared_value(loss, value))
        rows.append(differentiate(loss, trained))
    values.insert(0, values.pop())
    rows.insert(0, rows.pop())
    return mix_rows(rule, values, rows, trained)


def _unique(parameters: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, Tensor):  # iterating over one gives its rows, which are no leaves
        raise EngramError("parameters must be a collection of tensors, not one tensor.")
    try:
        unique = list({id(parameter): parameter for parameter in parameters}.values())
    except TypeError:
        raise EngramError(
            f"parameters must be a collection of tensors, not {shown(parameters)}."
        ) from None
    for parameter in unique:
        if not isinstance(parameter, Tensor):
            raise EngramError(f"parameters must be tensors, and one is {shown(parameter)}.")
    return unique


def _compared(losses: Sequence[Tensor], values: Sequence[Tensor | float] | None) -> list[Tensor]:
    if not isinstance(losses, Sequence):
        raise EngramError(f"losses must be a list of tensors, not {shown(losses)}.")
    if values is not None and not isinstance(values, Sequence):
        raise EngramError(f"values must be a list of numbers, not {shown(values)}.")
    if not losses:
        raise EngramError("losses must hold the current loss at least, and it is empty.")
    if values is not None and len(values) != len(losses):
        raise EngramError(
            f"values must be as many as losses, {len(losses)}, and there are {len(values)}."
        )
    for loss in losses:
        check_loss(loss)
    if values is None:
        return [compared_value(loss, None) for loss in losses]
    return [compared_value(*pair) for pair in zip(losses, values, strict=True)]
