"""GEM: the nearest update that opposes no past task."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from engram.errors import EngramError, shown
from engram.rules.quadratic import DIAGONAL, minimise
from engram.rules.rule import Rule, check_range, register


@dataclass(frozen=True)
class GEM(Rule):
    """Gradient episodic memory: one reference row r_k for each past task, and weights (1, v).

    Where some g·r_k < 0, v is the solution of the quadratic program

        minimise  ½ vᵀ(P + ridge · scale · I)v + qᵀv   subject to   v >= margin

    with P_jk = r_j·r_k, q_k = g·r_k and scale the mean of P's diagonal (of rows that are not 0), so
    that v does not depend on the unit of the gradients; elsewhere the weights are (1, 0, …). With
    margin 0 and ridge 0 the update is the nearest one to g with (update)·r_k >= 0 for every k; a
    ridge leaves a conflict of at most ridge · scale · v_k. A row whose square underflowed counts as
    0, without conflict.

    The row of a past task is the gradient on its memory, the same examples in every step, as in the
    original paper; with ``sampled`` on a fresh draw of them in every step.

    The program has as many variables as there are past tasks. Those of all leading dimensions are
    solved at once, in float64, on the device of the Gram matrix; a GPU's host reads nothing back.

    >>> import torch
    >>> gram = torch.tensor([[1.0, -0.9, 0.3], [-0.9, 1.0, 0.0], [0.3, 0.0, 1.0]])
    >>> GEM(margin=0.0, ridge=0.0)(torch.ones(3), gram)
    tensor([1.0000, 0.9000, 0.0000])
    """

    needs_gram = True
    reference = "per task"

    margin: float = 0.5
    ridge: float = 1e-3
    sampled: bool = False

    def __post_init__(self) -> None:
        check_range("margin", self.margin)
        check_range("ridge", self.ridge)
        if not isinstance(self.sampled, bool):
            raise EngramError(f"sampled must be True or False, not {shown(self.sampled)}.")

    @property
    def draws_by_task(self) -> bool:
        """Whether rows are of fresh draws."""
        return self.sampled

    def weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        """Return 1 and v."""
        assert gram is not None  # the base class has seen to it
        precision = torch.finfo(gram.dtype)
        rows = losses.shape[-1]
        gram = gram.double().reshape(losses.numel() // rows, rows, rows)
        products, linear = gram[:, 1:, 1:], gram[:, 0, 1:]
        absent = products.diagonal(dim1=-2, dim2=-1) < precision.tiny
        calm = ((linear >= 0) | absent).all(-1, keepdim=True)
        v = self._solve(products, linear, absent, precision.eps)
        return pad(v.masked_fill(calm, 0), (1, 0), value=1.0).view(losses.shape)

    def _solve(self, products: Tensor, linear: Tensor, absent: Tensor, eps: float) -> Tensor:
        """Return v of each problem, posed for rows of one length and for v − margin >= 0."""
        squares = products.diagonal(dim1=-2, dim2=-1)
        present = (squares > 0).sum(-1, keepdim=True).clamp(min=1)
        ridge = self.ridge * squares.sum(-1, keepdim=True) / present
        unit = ((squares + ridge) / DIAGONAL).rsqrt().masked_fill(absent, 0)
        matrix = products.lerp(products.mT, 0.5) * (unit.unsqueeze(-1) * unit.unsqueeze(-2))
        # The Gram matrix's rounding may cost dependent rows their convexity: this gives it back.
        matrix.diagonal(dim1=-2, dim2=-1).fill_(DIAGONAL * (1 + 8 * linear.shape[-1] * eps))
        linear = torch.add(linear, products.sum(-1) + ridge, alpha=self.margin)
        return self.margin + unit * minimise(matrix, unit * linear)


register("gem", GEM)
