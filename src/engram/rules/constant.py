"""The rules whose weights depend on nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engram.rules.rule import Rule, register


@dataclass(frozen=True)
class Current(Rule):
    """Plain training, the paper's VAN: weights (1, 0, …), the memory is never looked at.

    >>> import torch
    >>> Current()(torch.tensor([0.5, 2.0, 1.0]))
    tensor([1., 0., 0.])
    """

    needs_gram = False
    reference = "none"

    def weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return 1 and zeros."""
        weights = torch.zeros_like(losses)
        weights.select(-1, 0).fill_(1)
        return weights


@dataclass(frozen=True)
class Equal(Rule):
    """Experience replay: weights (1, 1), the paper's ablation of MEGA-I.

    >>> import torch
    >>> Equal()(torch.tensor([0.5, 2.0]))
    tensor([1., 1.])
    """

    needs_gram = False
    reference = "pooled"

    def weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return ones."""
        return torch.ones_like(losses)


register("current", Current)
register("equal", Equal)
