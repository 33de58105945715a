"""What one step's mixture was made of, and the one place where a mixture is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.gradients._matrix import Gradient, Matrix
from engram.gradients._numbers import as_tensor
from engram.rules import Rule

_PRECISIONS = {dtype: torch.finfo(dtype) for dtype in (torch.float32, torch.float64)}


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


class NumberMix(Mix):
    """A mix in plain numbers. A tensor is made when it is asked for: most steps are not watched."""

    numbers: tuple[list[float], list[list[float]] | None, list[float]]  # losses, gram, weights
    dtype: torch.dtype  # of the losses and the weights
    precision: torch.dtype  # of the dot products

    @classmethod
    def of(
        cls,
        losses: list[float],
        gram: list[list[float]] | None,
        weights: list[float],
        dtype: torch.dtype,
        precision: torch.dtype,
    ) -> NumberMix:
        """Return the mix of these numbers; the constructor is that of any mix, for tensors."""
        mix = cls.__new__(cls)
        # Not by assignment: a mix is frozen.
        mix.__dict__.update(numbers=(losses, gram, weights), dtype=dtype, precision=precision)
        return mix

    @cached_property
    def losses(self) -> Tensor:
        return as_tensor(self.numbers[0], self.dtype)

    @cached_property
    def gram(self) -> Tensor | None:
        gram = self.numbers[1]
        return None if gram is None else as_tensor(chain(*gram), self.precision).view(len(gram), -1)

    @cached_property
    def weights(self) -> Tensor:
        return as_tensor(self.numbers[2], self.dtype)


def check_rule(rule: object) -> None:
    """Refuse what is no rule: the class of one, most often."""
    if not isinstance(rule, Rule):
        raise EngramError(f"rule must be one such as MEGA2(), not {shown(rule)}.")


def weigh(
    rule: Rule, values: Sequence[Tensor], matrix: Matrix | None = None, scale: Tensor | None = None
) -> Mix:
    """Return the scalars of a step; ``matrix`` holds the rows where the rule compares them.

    Gradients that come multiplied by ``scale`` stay so; the rule sees them without it.
    """
    if values[0].is_cpu:
        return _weigh_in_numbers(rule, values, matrix, scale)
    losses, gram = torch.stack(list(values)), None
    if matrix is not None:
        gram = matrix.gram()
        losses = losses.to(torch.promote_types(losses.dtype, gram.dtype))
        if scale is not None:
            gram = gram / scale / scale  # twice, for its square may overflow
    return Mix(losses, gram, rule(losses, gram))


def _weigh_in_numbers(
    rule: Rule, values: Sequence[Tensor], matrix: Matrix | None, scale: Tensor | None
) -> Mix:
    """Do it in plain numbers, which cost a tenth of tensors."""
    losses, gram = [value.item() for value in values], None
    dtypes = {value.dtype for value in values}
    if matrix is not None:
        gram = matrix.gram_in_numbers()
        dtypes.add(matrix.dtype)
        if scale is not None:
            square = scale.item() ** 2
            gram = [[product / square for product in row] for row in gram]
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    trusted = dtype if matrix is None else matrix.dtype
    weights = rule.weigh_numbers(losses, gram, _PRECISIONS[trusted])
    return NumberMix.of(losses, gram, weights, dtype, trusted)


def mix_rows(
    rule: Rule,
    values: Sequence[Tensor],
    rows: Sequence[Gradient],
    parameters: Sequence[Tensor],
    scale: Tensor | None = None,
) -> Mix:
    """Weigh the rows and write their mixture to ``.grad``."""
    matrix = Matrix(rows, values[0].device)
    mix = weigh(rule, values, matrix if rule.needs_gram else None, scale)
    if isinstance(mix, NumberMix):
        mixture = matrix.mixture_in_numbers(mix.numbers[2], mix.dtype)
    else:
        mixture = matrix.mixture(mix.weights)
    for parameter, gradient in zip(parameters, mixture, strict=True):
        parameter.grad = gradient
    return mix
