"""What one step's mixture was made of, and the one place where a mixture is made."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.gradients._finite import (
    Check,
    Guard,
    Noted,
    flag,
    is_finite,
    refusal,
    trouble_in,
)
from engram.gradients._matrix import Gradient, Matrix
from engram.gradients._numbers import as_tensor
from engram.gradients._rows import clear_gradients
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


def on_host(value: Tensor) -> bool:
    """Tell whether a step is weighed and checked in plain numbers: there nothing has to wait."""
    return value.is_cpu


def check_rule(rule: object) -> None:
    """Refuse what is no rule: the class of one, most often."""
    if not isinstance(rule, Rule):
        raise EngramError(f"rule must be one such as MEGA2(), not {shown(rule)}.")


def weigh(
    rule: Rule,
    names: Sequence[Hashable],
    values: Sequence[Tensor],
    matrix: Matrix | None = None,
    *,
    scale: Tensor | None = None,
    check: Check = False,
) -> Mix:
    """Return the scalars of a step; ``matrix`` holds the rows where the rule compares them.

    Gradients that come multiplied by ``scale`` stay so; the rule sees them without it. What is in
    numbers is checked here, and what is on a device by `check_gradient`.
    """
    if on_host(values[0]):
        return _weigh_in_numbers(rule, names, values, matrix, scale, check)
    losses, gram = torch.stack(list(values)), None
    if matrix is not None:
        gram = matrix.gram()
        losses = losses.to(torch.promote_types(losses.dtype, gram.dtype))
        if scale is not None:
            gram = gram / scale / scale  # twice, for its square may overflow
    return Mix(losses, gram, rule(losses, gram))


def _weigh_in_numbers(
    rule: Rule,
    names: Sequence[Hashable],
    values: Sequence[Tensor],
    matrix: Matrix | None,
    scale: Tensor | None,
    check: Check,
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
    if check is not False and not _can_be_taken(rule, losses, weights):
        trouble = trouble_in(rule, names, losses, gram)
        given = f"{type(rule).__name__} gives the rows {shown([*names])} the weights {weights}"
        raise refusal(trouble or given)
    return NumberMix.of(losses, gram, weights, dtype, trusted)


def _can_be_taken(rule: Rule, losses: Sequence[float], weights: Sequence[float]) -> bool:
    """Tell whether no number of a step is in its way: one that is not finite makes weights NaN."""
    if min(losses) < 0 and rule.compares_losses:
        return False
    return all(map(math.isfinite, weights))


def mix_rows(
    rule: Rule,
    names: Sequence[Hashable],
    values: Sequence[Tensor],
    rows: Sequence[Gradient],
    parameters: Sequence[Tensor],
    *,
    scale: Tensor | None = None,
    check: Check = False,
) -> Mix:
    """Weigh the rows and write their mixture to ``.grad``, which is None where this raises."""
    matrix = Matrix(rows, values[0].device)
    compared = matrix if rule.needs_gram else None
    mix = weigh(rule, names, values, compared, scale=scale, check=check)
    if isinstance(mix, NumberMix):
        mixture = matrix.mixture_in_numbers(mix.numbers[2], mix.dtype)
    else:
        mixture = matrix.mixture(mix.weights)
    try:
        for parameter, gradient in zip(parameters, mixture, strict=True):
            parameter.grad = gradient
        if check is not False and not (rule.needs_gram and isinstance(mix, NumberMix)):
            check_gradient(rule, names, mix, parameters, rows[1:], check)
    except BaseException:
        clear_gradients(parameters)  # an interruption may come when some of them are written
        raise
    return mix


def check_gradient(
    rule: Rule,
    names: Sequence[Hashable],
    mix: Mix,
    parameters: Sequence[Tensor],
    references: Sequence[Gradient],
    check: Guard | Literal[True],
) -> None:
    """Refuse a mixture, in ``.grad``, that is not finite, or have it noted that it is not.

    In numbers there is nothing left to check where the rule has compared the rows. ``references``
    are the rows after the first, where they are still there: they may tell whose trouble it is.
    """
    gradient = None if rule.needs_gram else [parameter.grad for parameter in parameters]
    if isinstance(mix, NumberMix):
        if gradient is not None and not is_finite(gradient):
            raise refusal(_whose(names, references))
        return
    bad = flag(rule, mix.losses, mix.weights, gradient)
    noted = Noted(rule, names, mix.losses, mix.gram, bad)
    if isinstance(check, Guard):
        check.note(noted)
        check.silence(parameters)
    elif bad.item():
        raise refusal(noted.explain())


def _whose(names: Sequence[Hashable], references: Sequence[Gradient]) -> str:
    """Return which row's gradient is not finite, as far as it can be told."""
    if len(references) + 1 < len(names):
        return f"the gradient of the rows {shown([*names])} is not finite"
    wrong = (name for name, row in zip(names[1:], references, strict=True) if not is_finite(row))
    return f"the row {shown(next(wrong, names[0]))} has a gradient that is not finite"
