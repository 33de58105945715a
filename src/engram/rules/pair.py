"""Rules for two rows, the current batch's and the memory's: functions of five numbers."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.kernels import triton_works
from engram.rules.rule import Rule

# A number is a tensor, for many problems at once, or for one a float, of Python's or of numpy's.
# All know the operators of arithmetic and comparison, and &; formulas use nothing else but these
# and the functions below.
Number: TypeAlias = Any
Pair: TypeAlias = tuple[Number, Number]


class KernelFormula(NamedTuple):
    """A rule as `engram.kernels.rules` knows it."""

    name: str
    switches: tuple[bool, ...] = ()
    constants: tuple[float, ...] = ()


class PairRule(Rule):
    """A rule that weighs g, the current batch's gradient, and r, the memory's.

    One formula serves tensors of any leading dimensions, where nothing is read back to the host,
    and plain numbers (``weigh_numbers``), which on a CPU cost a tenth of the same arithmetic on
    tensors of one element. A rule may name a kernel of the same formula (``_kernel_formula``): on
    a GPU with Triton it is one launch instead of some thirty.
    """

    @abstractmethod
    def weigh_pair(
        self, losses: Pair, products: tuple[Number, Number, Number], precision: torch.finfo
    ) -> Pair:
        """Return the two weights, from (l_t, l_ref) and (g·g, g·r, r·r).

        ``precision`` is that of the dot products, which are NaN where the rule needs none.
        Weights for input that is not finite may be anything.
        """

    def _kernel_formula(self, precision: torch.finfo) -> KernelFormula | None:  # noqa: ARG002
        """Return the kernel of this rule, for dot products of a precision, if there is one."""
        return None

    def _weigh_and_mark(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        if losses.shape[-1] == 2 and _takes_kernels(losses, gram):
            precision = torch.finfo(losses.dtype if gram is None else gram.dtype)
            if (formula := self._kernel_formula(precision)) is not None:
                from engram.kernels import rules

                wide = None if gram is None else gram.to(losses.dtype)
                weights: Tensor = rules.weigh(*formula, losses, wide)
                return weights
        return super()._weigh_and_mark(losses, gram)

    def weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        """Return what the formula says of each pair."""
        if gram is None:
            gram = losses.new_full((), math.nan).expand(*losses.shape, 2)
        precision = torch.finfo(gram.dtype)
        gram = gram.to(losses.dtype)
        products = gram[..., 0, 0], gram[..., 0, 1], gram[..., 1, 1]
        pair = losses[..., 0], losses[..., 1]
        weights = self.weigh_pair(pair, products, precision)
        return torch.stack(weights, -1)

    def weigh_numbers(
        self,
        losses: Sequence[float],
        gram: Sequence[Sequence[float]] | None,
        precision: torch.finfo,
    ) -> list[float]:
        """Return the weights of one problem that is given in plain numbers."""
        if len(losses) != 2:
            return super().weigh_numbers(losses, gram, precision)
        (squares, products), (_, reference) = gram or ((0.0, 0.0), (0.0, 0.0))
        pair, dots = (losses[0], losses[1]), (squares, products, reference)
        if not all(map(math.isfinite, (*pair, *dots))):
            return [math.nan, math.nan]
        try:
            weights = self.weigh_pair(pair, dots, precision)
        except (ValueError, ZeroDivisionError):  # numpy's know what those are, at twice the price
            with np.errstate(all="ignore"):
                current, remembered, *wide = map(np.float64, (*pair, *dots))
                weights = self.weigh_pair((current, remembered), tuple(wide), precision)  # type: ignore[arg-type]
        return [float(weight) for weight in weights]


def _takes_kernels(losses: Tensor, gram: Tensor | None) -> bool:
    # Triton is tried with float32; what it needs for float64 it then has too.
    return all(triton_works(each, each.dtype) for each in (losses, gram) if each is not None)


def keep(condition: Number, value: Number, otherwise: float) -> Number:
    """Return the value where the condition holds, and the constant elsewhere."""
    if isinstance(value, Tensor):
        return value.masked_fill(~condition, otherwise)
    return value if condition else otherwise


def choose(condition: Number, yes: Number, no: Number) -> Number:
    """Return one value where the condition holds, and the other elsewhere."""
    if isinstance(yes, Tensor):
        return torch.where(condition, yes, no)
    return yes if condition else no


def clip(value: Number, least: float, most: float | None = None) -> Number:
    """Return the value, or the bound that it exceeds."""
    if isinstance(value, Tensor):
        return value.clamp(least, most)
    # In its own kind of number: one of Python's would raise where it is divided by 0.
    return type(value)(max(value, least) if most is None else min(max(value, least), most))


def root(value: Number) -> Number:
    """Return the square root."""
    if isinstance(value, Tensor):
        return value.sqrt()
    return math.sqrt(value) if type(value) is float else np.sqrt(value)
