"""A-GEM: project the current gradient so that it no longer opposes the memory's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engram.rules.pair import KernelFormula, Number, Pair, PairRule, keep
from engram.rules.rule import register


@dataclass(frozen=True)
class AGEM(PairRule):
    """Averaged gradient episodic memory: g, less what of it opposes the memory's gradient r.

    The weights are (1, −g·r / r·r) where g·r < 0, else (1, 0), so that (update)·r >= 0. Where r·r
    is 0, or so small that it underflowed, there is nothing to oppose: (1, 0).

    >>> import torch
    >>> g_dot_r = -0.5
    >>> AGEM()(torch.tensor([1.0, 1.0]), torch.tensor([[1.0, g_dot_r], [g_dot_r, 2.0]]))
    tensor([1.0000, 0.2500])
    """

    needs_gram = True
    reference = "pooled"

    def weigh_pair(
        self,
        losses: Pair,  # noqa: ARG002
        products: tuple[Number, Number, Number],
        precision: torch.finfo,
    ) -> Pair:
        """Return 1, and the share of r that takes the conflict out of g."""
        _, product, square = products
        conflict = (product < 0) & (square >= precision.tiny)
        projection = keep(conflict, -product / square, 0.0)
        return 0 * product + 1, projection

    def _kernel_formula(self, precision: torch.finfo) -> KernelFormula:
        return KernelFormula("agem", constants=(precision.tiny,))


register("a-gem", AGEM)
