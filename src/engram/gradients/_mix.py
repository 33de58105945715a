"""What one step's mixture was made of, and the one place where a mixture is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients._matrix import Gradient, Matrix
from engram.rules import Rule


@dataclass(frozen=True)
class Mix:
    """The scalars of one step: ``update = weights @ rows``, row 0 being the current batch.

    >>> losses, gram = torch.tensor([2.0, 1.0]), torch.tensor([[1.0, -1.0], [-1.0, 4.0]])
    >>> Mix(losses, gram, weights=torch.tensor([1.0, 0.25])).weights
    tensor([1.0000, 0.2500])
    """

    losses: Tensor  # [n], each row's value
    gram: Tensor | None  # [n, n], the rows' dot products; None where the rule needs none
    weights: Tensor  # [n]


def check_rule(rule: object) -> None:
    """Refuse what is no rule: the class of one, most often."""
    if not isinstance(rule, Rule):
        raise EngramError(f"rule must be one such as MEGA2(), not {rule!r}.")


def weigh(rule: Rule, losses: Tensor, gram: Tensor | None) -> Tensor:
    """Return the rule's weights; on a CPU from plain numbers, which cost a tenth of tensors."""
    if losses.device.type != "cpu":
        return rule(losses, gram)
    precision = torch.finfo((losses if gram is None else gram).dtype)
    matrix = None if gram is None else gram.tolist()
    return torch.tensor(rule.weigh_numbers(losses.tolist(), matrix, precision), dtype=losses.dtype)


def mix_rows(
    rule: Rule,
    values: Sequence[Tensor],
    rows: Sequence[Gradient],
    parameters: Sequence[Tensor],
    scale: Tensor | None = None,
) -> Mix:
    """Weigh the rows and write their mixture to ``.grad``.

    Gradients that come multiplied by ``scale`` stay so; the rule sees them without it.
    """
    losses, gram = torch.stack(list(values)), None
    matrix = Matrix(rows, losses.device)
    if rule.needs_gram:
        gram = matrix.gram()
        if gram.dtype != losses.dtype:
            losses = losses.to(torch.promote_types(losses.dtype, gram.dtype))
        if scale is not None:
            gram = gram / scale / scale  # twice, for its square may overflow
    weights = weigh(rule, losses, gram)
    for parameter, gradient in zip(parameters, matrix.mixture(weights), strict=True):
        parameter.grad = gradient
    return Mix(losses, gram, weights)
