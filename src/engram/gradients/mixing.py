"""The mixture of a step: the rule's weights, and what they make of the rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.gradients.finite import (
    Check,
    Guard,
    PendingStep,
    find_problem,
    is_bad_step,
    is_finite,
    refusal,
)
from engram.gradients.gram import Gradient, GradientRows, as_tensor
from engram.gradients.scattered import ScatteredRows, scattered_rows
from engram.gradients.sharded import Shards, own_parts
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


class _NumberMix(Mix):
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
    ) -> _NumberMix:
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


def mix_rows(
    rule: Rule,
    names: Sequence[Hashable],
    values: Sequence[Tensor],
    rows: Sequence[Gradient],
    parameters: Sequence[Tensor],
    *,
    scale: Tensor | None = None,
    check: Check = False,
    shards: Shards | None = None,
) -> Mix:
    """Weigh the rows and write their mixture to ``.grad``, which is None where this raises."""
    check_reached(rows, parameters)
    if shards is None and scale is None and not on_host(values[0]):
        scattered = scattered_rows(rows, values)
        if scattered is not None:
            return _mix_scattered(rule, names, values, scattered, parameters, check)
    parts = rows if shards is None else [own_parts(row) for row in rows]
    matrix = GradientRows(parts, values[0].device, shards)
    compared = matrix if rule.needs_gram else None
    mix = weigh(rule, names, values, compared, scale=scale, check=check)
    if isinstance(mix, _NumberMix):
        mixture = matrix.mixture_in_numbers(mix.numbers[2], mix.dtype)
    else:
        mixture = matrix.mixture(mix.weights)
    if shards is not None:  # it is formed in the parts of the first gradient that there is
        columns = zip(*rows, strict=True)
        mixture = [next((e for e in column if e is not None), None) for column in columns]
    try:
        for parameter, gradient in zip(parameters, mixture, strict=True):
            parameter.grad = gradient
        if check is not False and not (rule.needs_gram and isinstance(mix, _NumberMix)):
            check_gradient(rule, names, mix, parameters, rows[1:], check, shards)
    except BaseException:
        clear_gradients(parameters)  # an interruption may come when some of them are written
        raise
    return mix


def _mix_scattered(
    rule: Rule,
    names: Sequence[Hashable],
    values: Sequence[Tensor],
    rows: ScatteredRows,
    parameters: Sequence[Tensor],
    check: Check,
) -> Mix:
    """Do it by kernels, which find, too, whether the step is one that `is_bad_step` would tell."""
    from engram.kernels import rows as kernels

    losses, gram, mark = kernels.compare_scattered(rows.table, values, products=rule.needs_gram)
    weights = rule(losses, gram).contiguous()
    marks = None
    if check is not False:
        guarded = check.flag_on(losses.device) if isinstance(check, Guard) else None
        marks = mark, torch.empty_like(losses[0]) if guarded is None else guarded
    kernels.mix_scattered(
        rows.table,
        losses,
        weights,
        marks,
        compares_losses=rule.compares_losses,
        look=not rule.needs_gram,
    )
    try:
        for parameter, gradient in zip(parameters, rows.mixture, strict=True):
            parameter.grad = gradient
        if marks is not None:
            step = PendingStep(rule, names, losses, gram, mark.view(torch.bool))
            _keep_or_refuse(step, parameters, check, flagged=True)
    except BaseException:
        clear_gradients(parameters)
        raise
    return Mix(losses, gram, weights)


def weigh(
    rule: Rule,
    names: Sequence[Hashable],
    values: Sequence[Tensor],
    rows: GradientRows | None = None,
    *,
    scale: Tensor | None = None,
    check: Check = False,
) -> Mix:
    """Return the scalars of a step; ``rows`` are there where the rule compares them.

    Gradients that come multiplied by ``scale`` stay so; the rule sees them without it. What is in
    numbers is checked here, and what is on a device by `check_gradient`.
    """
    if on_host(values[0]):
        return _weigh_in_numbers(rule, names, values, rows, scale, check)
    losses, gram = torch.stack(list(values)), None
    if rows is not None:
        gram = rows.gram()
        losses = losses.to(torch.promote_types(losses.dtype, gram.dtype))
        if scale is not None:
            gram = gram / scale / scale  # twice, for its square may overflow
    return Mix(losses, gram, rule(losses, gram))


def _weigh_in_numbers(
    rule: Rule,
    names: Sequence[Hashable],
    values: Sequence[Tensor],
    rows: GradientRows | None,
    scale: Tensor | None,
    check: Check,
) -> Mix:
    """Do it in plain numbers, which cost a tenth of tensors."""
    losses, gram = [value.item() for value in values], None
    dtypes = {value.dtype for value in values}
    if rows is not None:
        gram = rows.gram_in_numbers()
        dtypes.add(rows.dtype)
        if scale is not None:
            square = scale.item() ** 2
            gram = [[product / square for product in row] for row in gram]
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    precision = dtype if rows is None else rows.dtype
    weights = rule.weigh_numbers(losses, gram, _PRECISIONS[precision])
    if check is not False:
        negative = min(losses) < 0 and rule.compares_losses
        # A loss or a dot product that is not finite makes the weights NaN.
        if negative or not all(map(math.isfinite, weights)):
            given = f"{type(rule).__name__} gives the rows {shown([*names])} the weights {weights}"
            raise refusal(find_problem(rule, names, losses, gram) or given)
    return _NumberMix.of(losses, gram, weights, dtype, precision)


def check_reached(rows: Sequence[Gradient], parameters: Sequence[Tensor]) -> None:
    """Refuse a step that would change nothing: no row has a gradient of anything that is trained.

    As a rule the first parameter of the first row has one, and nothing else is looked at.
    """
    for row in rows:
        for each in row:
            if each is not None:
                return
    if any(parameter.requires_grad for parameter in parameters):
        raise EngramError(
            "The loss reaches none of the parameters: they may be those of another model, of which "
            "the optimiser was made before this one was."
        )


def check_gradient(
    rule: Rule,
    names: Sequence[Hashable],
    mix: Mix,
    parameters: Sequence[Tensor],
    references: Sequence[Gradient],
    check: Guard | Literal[True],
    shards: Shards | None = None,
) -> None:
    """Refuse a mixture, in ``.grad``, that is not finite, or let the guard record that it is not.

    In numbers there is nothing left to check where the rule has compared the rows. ``references``
    are the rows after the first, where they are still there: they may tell which one is wrong.
    Of sharded ones no rank knows it alone.
    """
    gradient = None if rule.needs_gram else own_parts([each.grad for each in parameters])
    if isinstance(mix, _NumberMix):
        if gradient is None:
            return
        finite = is_finite(gradient)
        if shards is not None:
            bad = torch.tensor(not finite, device=mix.losses.device)
            finite, references = not shards.anywhere(bad).item(), ()
        if not finite:
            raise refusal(_find_bad_gradient(names, references))
        return
    bad = is_bad_step(rule, mix.losses, mix.weights, gradient)
    if shards is not None:
        bad = shards.anywhere(bad)
    _keep_or_refuse(PendingStep(rule, names, mix.losses, mix.gram, bad), parameters, check)


def _keep_or_refuse(
    step: PendingStep, parameters: Sequence[Tensor], check: Check, *, flagged: bool = False
) -> None:
    """Let the guard record a device's step, or wait for the device, and refuse one that is bad."""
    if isinstance(check, Guard):
        check.record(step, flagged=flagged)
        check.zero_if_bad(parameters)
    elif step.bad.item():
        raise refusal(step.explain())


def _find_bad_gradient(names: Sequence[Hashable], references: Sequence[Gradient]) -> str:
    """Return which row's gradient is not finite, as far as it can be told."""
    if len(references) + 1 < len(names):
        return f"the gradient of the rows {shown([*names])} is not finite"
    wrong = (name for name, row in zip(names[1:], references, strict=True) if not is_finite(row))
    return f"the row {shown(next(wrong, names[0]))} has a gradient that is not finite"


def clear_gradients(parameters: Iterable[Tensor]) -> None:
    """Set ``.grad`` to None, of frozen parameters too: an optimiser follows a stale one."""
    for parameter in parameters:
        parameter.grad = None
