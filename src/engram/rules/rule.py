"""The contract that all rules share, the checks that come before every one, and their names."""

from __future__ import annotations

import dataclasses
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.plugins import Registry

Reference: TypeAlias = Literal["none", "pooled", "per task"]


class Rule(ABC):
    """Weights for a mixture of gradients, from a few scalars: ``update = weights @ rows``.

    Row 0 is the gradient of the current batch, the other rows come from the memory. A rule sees
    each row's loss and the dot products of the rows, never a parameter, a model or a device. Of
    all rules it is true that

    - with one row (nothing is remembered yet) the weights are (1);
    - leading dimensions are independent problems, one beside the other;
    - an element of the leading dimensions with a loss or a dot product that is not finite gets
      weights that are all NaN, and its neighbours are untouched: trouble stays visible;
    - the weights have the losses' dtype and carry no autograd graph;
    - nothing is read back to the host, so a step can be captured (on a GPU not with a rule's
      first call, which may compile a kernel).
    """

    needs_gram: bool
    """Whether the rule asks for the rows' dot products, or for their losses alone."""

    reference: Reference
    """Which rows the rule wants beside row 0: none, one for the whole memory, one a past task."""

    @property
    def draws_by_task(self) -> bool:
        """Whether the row of a past task is that of a fresh draw in every step.

        Otherwise it is that of all its examples or, where only so many are to be read, of the last
        ones: the same in every step while none come or go. Of a pooled row every step has its draw.
        """
        return False

    @property
    def compares_losses(self) -> bool:
        """Whether the weights depend on the losses, which should then be 0 or more.

        A rule takes a negative loss for 0; where a training step is taken, it is refused.
        """
        return False

    def __call__(self, losses: Tensor, gram: Tensor | None = None) -> Tensor:
        """Return the weights of the rows, ``[..., rows]``, in the dtype of the losses.

        ``losses`` holds each row's loss, ``[..., rows]``, and ``gram`` the dot products of the
        rows, ``[..., rows, rows]``. Both are float32 or float64, not necessarily the same.
        """
        self._check(losses, gram)
        dtype = losses.dtype
        losses = losses.detach()
        if gram is not None:
            gram = gram.detach()
            losses = losses.to(torch.promote_types(dtype, gram.dtype))
        return self._weigh_and_mark(losses, gram).to(dtype)

    def _weigh_and_mark(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        """Return the weights for checked input, all NaN where some of it is not finite."""
        # x − x is 0, but NaN where x is not finite: added to the weights, it marks trouble.
        trouble = losses - losses
        if losses.shape[-1] > 1:
            trouble = trouble.sum(-1, keepdim=True)
        if gram is not None:
            trouble = trouble + (gram - gram).sum((-2, -1)).unsqueeze(-1)
        if losses.shape[-1] == 1:
            return trouble + 1
        weights = self.weigh(losses, gram)
        if not isinstance(weights, Tensor) or weights.shape != losses.shape:
            found = list(weights.shape) if isinstance(weights, Tensor) else shown(weights)
            raise EngramError(
                f"{type(self).__name__}.weigh must return a weight for each row, "
                f"{list(losses.shape)}, not {found}."
            )
        return trouble + weights

    def weigh_numbers(
        self,
        losses: Sequence[float],
        gram: Sequence[Sequence[float]] | None,
        precision: torch.finfo,
    ) -> list[float]:
        """Return the weights of one problem that is given in plain numbers.

        The promises are those of a call; ``precision`` is that of the dot products.
        """
        dtype = {32: torch.float32, 64: torch.float64}[precision.bits]
        matrix = None if gram is None else torch.tensor(gram, dtype=dtype, device="cpu")
        values = torch.tensor(losses, dtype=torch.float64, device="cpu")
        weights: list[float] = self(values, matrix).tolist()
        return weights

    @abstractmethod
    def weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        """Return the weights of two rows or more, for checked input.

        ``losses`` come in the wider of the two dtypes. ``gram`` keeps its own, whose precision
        says how far the dot products can be trusted; it is there if the rule needs it. Weights
        for input that is not finite may be anything.
        """

    def _check(self, losses: Tensor, gram: Tensor | None) -> None:
        """Refuse what no rule, or not this one, can weigh."""
        name = type(self).__name__
        _check_dtype("losses", losses)
        if losses.dim() == 0 or losses.shape[-1] == 0:
            raise EngramError(
                f"losses must have the shape [..., rows] with one row or more, "
                f"not {list(losses.shape)}."
            )
        rows = losses.shape[-1]
        if self.reference == "pooled" and rows > 2:
            raise EngramError(
                f"{name} weighs at most 2 rows (the current batch and the pooled memory), "
                f"and losses has {rows}."
            )
        if gram is None:
            if self.needs_gram and rows > 1:
                raise EngramError(
                    f"{name} needs gram, the dot products of the rows, with the shape "
                    f"{[*losses.shape, rows]}, and it is missing."
                )
            return
        _check_dtype("gram", gram)
        if gram.shape != (*losses.shape, rows):
            raise EngramError(
                f"gram must have the shape {[*losses.shape, rows]} to match losses "
                f"{list(losses.shape)}, not {list(gram.shape)}."
            )
        if gram.device != losses.device:
            raise EngramError(
                f"gram must be on {losses.device} as losses are, and it is on {gram.device}."
            )


def _check_dtype(field: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise EngramError(f"{field} must be a tensor, not {type(value).__name__}.")
    if value.dtype not in (torch.float32, torch.float64):
        raise EngramError(f"{field} must be float32 or float64, not {value.dtype}.")
    if value.layout is not torch.strided:
        raise EngramError(f"{field} must be dense, not {value.layout}.")


def check_range(field: str, value: float, upper: float = math.inf) -> None:
    """Refuse a setting that is not a finite number from 0 to ``upper``."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value < 2**63  # as torch's
    number = isinstance(value, float) or whole
    if not (number and 0 <= value <= min(upper, sys.float_info.max)):
        limits = "0 or more" if upper == math.inf else f"from 0 to {upper}"
        raise EngramError(f"{field} must be a finite number, {limits}, not {shown(value)}.")


def _check_class(name: str, value: object) -> type[Rule]:
    """Refuse what is no rule, and one whose numbers are no settings."""
    if not (isinstance(value, type) and issubclass(value, Rule)):
        raise EngramError(f"The rule {shown(name)} must be a class that extends Rule.")
    if not dataclasses.is_dataclass(value):
        raise EngramError(f"The rule {value.__name__} must be a frozen dataclass.")
    given = {each.name for each in dataclasses.fields(value)}
    for fact in ("needs_gram", "reference"):
        if not hasattr(value, fact) and fact not in given:
            raise EngramError(f"The rule {value.__name__} must say its {fact}; see Rule.{fact}.")
    return value


RULES: Registry[type[Rule]] = Registry("rules", "rule", _check_class)


def register(name: str, rule: type[Rule]) -> None:
    """Make a rule known by a name: a class that extends `Rule`, a frozen dataclass.

    A rule of a plugin is also a method of that name, whose settings are those of every method with
    a memory and the fields of the rule.
    """
    RULES.add(name, rule, module=getattr(rule, "__module__", ""))
