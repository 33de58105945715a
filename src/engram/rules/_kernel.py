"""A rule for two rows as one kernel of a GPU, made from the rule's own formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from engram.rules._symbol import Symbol, in_c

if TYPE_CHECKING:  # which asks for kernels
    from engram.rules._pair import PairRule

_LOSSES = ("current", "reference")
_DOTS = ("gg", "gr", "rg", "rr")  # the Gram matrix, row by row


def weigh_on_device(rule: PairRule, losses: Tensor, gram: Tensor | None) -> Tensor:
    """Return the weights [..., 2] of losses [..., 2], NaN where anything is not finite.

    The first call with a rule compiles its kernel, in less than a second; it must not be one
    that is captured in a CUDA graph.
    """
    precision = losses.dtype if gram is None else gram.dtype
    dots = () if gram is None else torch.split(gram.to(losses.dtype).flatten(-2), 1, -1)
    kernel = _kernel(rule, precision, gram is not None)
    return kernel(_rows(losses.dtype, losses.device), *torch.split(losses, 1, -1), *dots)


@cache
def _kernel(rule: PairRule, precision: torch.dtype, has_gram: bool) -> Callable[..., Tensor]:
    source = kernel_source(rule, torch.finfo(precision), has_gram=has_gram)
    return cast(Callable[..., Tensor], torch.cuda.jiterator._create_jit_fn(source))


@cache
def _rows(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers of the rows, which tell a kernel whose weight it is to compute."""
    return torch.arange(2, dtype=dtype, device=device)


def kernel_source(rule: PairRule, precision: torch.finfo, *, has_gram: bool) -> str:
    """Return a row's weight as a function in C++: of its number, the losses and the Gram matrix."""
    names = (*_LOSSES, *_DOTS) if has_gram else _LOSSES
    inputs = [Symbol(name) for name in names]
    current, reference, *gram = inputs
    lengths = (gram[0], gram[1], gram[3]) if has_gram else (math.nan,) * 3
    weights = rule._weigh_pair((current, reference), lengths, precision)
    # As for tensors: x − x is 0, but NaN where x is not finite.
    trouble = sum(number - number for number in inputs)
    statements, result = in_c((Symbol("row") < 1).choose(*weights) + trouble)
    parameters = ", ".join(f"T {name}" for name in ("row", *names))
    body = "\n  ".join([*statements, f"return {result};"])
    return f"template <typename T> T weigh_pair({parameters}) {{\n  {body}\n}}\n"
