"""MEGA-I: balance the two losses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch

from engram.errors import unknown
from engram.rules.pair import KernelFormula, Number, Pair, PairRule, clip, keep
from engram.rules.rule import check_range, register

_TESTS = ("current", "reference")
_RELEASED_THRESHOLD = 1e-10


@dataclass(frozen=True)
class MEGA1(PairRule):
    """MEGA-I: the memory counts the more, the better the current batch is already learnt.

    With ``test="current"``, the paper's rule, the weights are (1, l_ref / l_t) where
    l_t > ``epsilon``, else (0, 1): the memory's gradient alone.

    With ``test="reference"``, the rule of the authors' released code, they are
    (1, l_ref / l_t) where l_ref > 1e-10, else (0, 1); ``epsilon`` is not used.

    In both, a ratio that has no finite value (l_t is 0, or next to it) gives (0, 1), its limit's
    direction. Losses are compared by their ratio, so a negative one counts as 0; a training step
    refuses it.

    >>> import torch
    >>> MEGA1()(torch.tensor([[0.5, 2.0], [0.0001, 2.0]]))
    tensor([[1., 4.],
            [0., 1.]])
    """

    needs_gram = False
    reference = "pooled"

    epsilon: float = 1e-3
    test: Literal["current", "reference"] = field(default="current", kw_only=True)

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon)
        if not isinstance(self.test, str) or self.test not in _TESTS:
            raise unknown("MEGA1 test", str(self.test), _TESTS)

    @property
    def compares_losses(self) -> bool:
        """Yes: the memory's weight is the ratio of the losses."""
        return True

    def weigh_pair(
        self,
        losses: Pair,
        products: tuple[Number, Number, Number],  # noqa: ARG002
        precision: torch.finfo,  # noqa: ARG002
    ) -> Pair:
        """Return the weights of g and r."""
        current, reference = clip(losses[0], 0.0), clip(losses[1], 0.0)
        ratio = reference / current
        paper = self.test == "current"
        both = current > self.epsilon if paper else reference > _RELEASED_THRESHOLD
        both = both & (ratio < math.inf)
        # 0 * ratio is NaN only where the ratio is not finite, which is where it is not kept.
        return keep(both, 0 * ratio + 1, 0.0), keep(both, ratio, 1.0)

    def _kernel_formula(self, precision: torch.finfo) -> KernelFormula:  # noqa: ARG002
        paper = self.test == "current"
        return KernelFormula("mega1", (paper,), (self.epsilon if paper else _RELEASED_THRESHOLD,))


register("mega-i", MEGA1)
