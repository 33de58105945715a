"""GEM: the nearest update that opposes no past task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engram.rules._quadratic import Flags, Numbers, minimise
from engram.rules._rule import Rule, check_range


@dataclass(frozen=True)
class GEM(Rule):
    """Gradient episodic memory: one reference row r_k for each past task, and weights (1, v).

    Where some g·r_k < 0, v is the solution of the quadratic program

        minimise  ½ vᵀ(P + ridge · scale · I)v + qᵀv   subject to   v >= margin

    with P_jk = r_j·r_k, q_k = g·r_k and scale the mean of P's diagonal, so that v does not depend
    on the unit of the gradients; elsewhere the weights are (1, 0, …). With margin 0 and ridge 0 the
    update is the nearest one to g with (update)·r_k >= 0 for every k; a ridge leaves a conflict of
    at most ridge · scale · v_k. A row whose square underflowed counts as 0, without conflict.

    The program has as many variables as there are past tasks. It is solved on the host in float64,
    with one transfer of the Gram matrix for all leading dimensions.

    >>> import torch
    >>> gram = torch.tensor([[1.0, -0.9, 0.3], [-0.9, 1.0, 0.0], [0.3, 0.0, 1.0]])
    >>> GEM(margin=0.0, ridge=0.0)(torch.ones(3), gram)
    tensor([1.0000, 0.9000, 0.0000])
    """

    needs_gram = True
    reference = "per task"

    margin: float = 0.5
    ridge: float = 1e-3

    def __post_init__(self) -> None:
        check_range("margin", self.margin)
        check_range("ridge", self.ridge)

    def _weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        assert gram is not None  # the base class has seen to it
        precision = torch.finfo(gram.dtype)
        rows = losses.shape[-1]
        grams = gram.cpu().double().numpy().reshape(-1, rows, rows)
        weights = np.zeros((len(grams), rows))
        weights[:, 0] = 1
        there = np.diagonal(grams, axis1=1, axis2=2)[:, 1:] >= precision.tiny
        conflict = ((grams[:, 0, 1:] < 0) & there).any(-1) & np.isfinite(grams).all((1, 2))
        for index in np.flatnonzero(conflict):
            weights[index, 1:] = self._solve(grams[index], there[index], precision.eps)
        return torch.from_numpy(weights).to(losses.dtype).to(losses.device).view(losses.shape)

    def _solve(self, gram: Numbers, there: Flags, eps: float) -> Numbers:
        """Return v of one problem, posed for rows of unit length and for v − margin >= 0."""
        products, linear = gram[1:, 1:], gram[0, 1:]
        size = len(linear)
        scale = products.diagonal().mean()
        matrix = products / scale + self.ridge * np.eye(size)
        linear = linear / scale + self.margin * matrix.sum(-1)
        unit = np.zeros(size)
        unit[there] = 1 / np.sqrt(matrix.diagonal()[there])
        matrix = matrix * unit[:, None] * unit
        # The Gram matrix's rounding may cost dependent rows their convexity: this gives it back.
        matrix.flat[:: size + 1] += 8 * size * eps
        return self.margin + unit * minimise(matrix, unit * linear)
