"""GEM: the nearest update that opposes no past task, and how its quadratic programs are solved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from engram.errors import EngramError, shown
from engram.kernels import triton_works
from engram.rules.rule import Rule, check_range, register

DIAGONAL = 30.0  # found by trial: the fewest rounds, see _Tableau.choose
_TOLERANCE = 1e-11  # of a value or a slope, beside the largest slope at 0
_MOST_IN_KERNEL = 63  # entries of a problem whose tableau a tile holds


@dataclass(frozen=True)
class GEM(Rule):
    """Gradient episodic memory: one reference row r_k for each past task, and weights (1, v).

    Where some g·r_k < 0, v is the solution of the quadratic program

        minimise  ½ vᵀ(P + ridge · scale · I)v + qᵀv   subject to   v >= margin

    with P_jk = r_j·r_k, q_k = g·r_k and scale the mean of P's diagonal (of rows that are not 0), so
    that v does not depend on the unit of the gradients; elsewhere the weights are (1, 0, …). With
    margin 0 and ridge 0 the update is the nearest one to g with (update)·r_k >= 0 for every k; a
    ridge leaves a conflict of at most ridge · scale · v_k. With ``relative`` false the scale is 1,
    as in the original code, and v depends on the unit. A row whose square underflowed counts as
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
    relative: bool = True

    def __post_init__(self) -> None:
        check_range("margin", self.margin)
        check_range("ridge", self.ridge)
        if not isinstance(self.sampled, bool):
            raise EngramError(f"sampled must be True or False, not {shown(self.sampled)}.")
        if not isinstance(self.relative, bool):
            raise EngramError(f"relative must be True or False, not {shown(self.relative)}.")

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
        scale = squares.sum(-1, keepdim=True) / present
        ridge = self.ridge * (scale if self.relative else torch.ones_like(scale))
        unit = ((squares + ridge) / DIAGONAL).rsqrt().masked_fill(absent, 0)
        matrix = products.lerp(products.mT, 0.5) * (unit.unsqueeze(-1) * unit.unsqueeze(-2))
        # The Gram matrix's rounding may cost dependent rows their convexity: this gives it back.
        matrix.diagonal(dim1=-2, dim2=-1).fill_(DIAGONAL * (1 + 8 * linear.shape[-1] * eps))
        linear = torch.add(linear, products.sum(-1) + ridge, alpha=self.margin)
        return self.margin + unit * minimise(matrix, unit * linear)


def minimise(matrix: Tensor, linear: Tensor) -> Tensor:
    """Return the x >= 0 that minimises ½ xᵀAx + bᵀx for each problem, ``[problems, n]``.

    ``matrix`` holds the A, ``[problems, n, n]``, in float64: symmetric, positive (semi-)definite
    and with ``DIAGONAL`` on the diagonal. ``linear`` holds the b, ``[problems, n]``.

    Principal pivoting: an entry of x is held at 0 and has a slope, or it is free and has a value,
    and what it has is to be >= 0. The entry that is most wrong changes sides, until none is wrong:
    in about as many rounds as entries end up free. As that can go round in a circle, later rounds
    take the entry that gains most.

    The largest number of rounds depends on n alone and nothing is read back to the host, so that
    a call can be captured in a CUDA graph; a CPU looks, and ends when all problems are solved, and
    so does each problem by itself in a kernel of Triton's, which the first call of a size compiles:
    that must not be a captured one. Where the rounds do not suffice, or A is not as it should be, x
    is finite, >= 0 and no worse than 0.
    """
    unit: Tensor = torch.linalg.vector_norm(linear, ord=torch.inf, dim=-1, keepdim=True)
    unit = unit.clamp(min=torch.finfo(unit.dtype).tiny)
    linear = linear / unit
    size = linear.shape[-1]
    rounds = size + max(size // 4, 6)
    if size <= _MOST_IN_KERNEL and triton_works(matrix, torch.float64):
        from engram.kernels import rules

        x = rules.pivoted(matrix, linear, rounds, _TOLERANCE)
    else:
        x = _pivoted(matrix, linear, rounds)
    slopes = torch.add((matrix * x.unsqueeze(-2)).sum(-1), linear, alpha=2)
    height = (x * slopes).sum(-1, keepdim=True)  # twice the objective, which is 0 at 0
    return (x * unit).masked_fill(~(height <= _TOLERANCE), 0)  # also where x is not a number


def _pivoted(matrix: Tensor, linear: Tensor, rounds: int) -> Tensor:
    """Return x where the rounds end, for those of all problems, one operation at a time."""
    tableau = _Tableau(matrix, linear)
    on_cpu = matrix.device.type == "cpu"
    for number in range(rounds):
        tableau.choose(by_gain=number >= tableau.size // 2)
        if on_cpu and tableau.is_solved():
            break
        tableau.pivot()
    return tableau.solution()


class _Tableau:
    """The state of each problem: a matrix T, at first

        ⎛ A   0   b ⎞
        ⎜ 0   1  −t ⎟
        ⎝ bᵀ  0   0 ⎠

    in which entry k changes sides by T ← T − (Te + e)(eᵀT − eᵀ) / eᵀTe, with e = e_k. The last
    column holds what is to be >= 0; so does the last row, with a minus for the free entries. The
    row before the last is chosen where no entry is wrong by more than t, and then nothing changes.

    T − I and (T + I)ᵀ are kept beside T, so that a pivot is four operations: on a GPU it is their
    number that costs. On a CPU every view costs as much, so all of them are made once, here.
    """  # noqa: D400, D415

    def __init__(self, matrix: Tensor, linear: Tensor) -> None:
        problems, self.size = linear.shape
        width = self.size + 2
        tables = matrix.new_zeros(3, problems, width, width)
        tables[..., : self.size, : self.size] = matrix
        tables[..., : self.size, -1] = linear
        tables[..., -1, : self.size] = linear
        tables[..., self.size, self.size].fill_(1)
        # Not in T − I, whose row stays 0: as a factor, it makes the change 0.
        tables[2, :, self.size, -1].fill_(-_TOLERANCE)
        less, more, self.diagonal = tables.diagonal(dim1=-2, dim2=-1)
        less.sub_(1)
        more.add_(1)
        self.tables, self.table = tables, tables[2]
        self.candidates, self.weights = self.table[:, :-1, -1], more[:, :-1]
        self.scores = torch.empty_like(self.candidates)
        self.chosen = torch.empty(problems, 1, dtype=torch.int64, device=matrix.device)
        self.pivots = matrix.new_empty(problems, 1, 1)
        # Row, column, row, column: each table's change is the product of two neighbours.
        self.twice = tables[:2].expand(2, 2, problems, width, width)
        self.places = self.chosen.unsqueeze(-1).expand(2, 2, problems, 1, width)
        self.lines = matrix.new_empty(2, 2, problems, 1, width)
        lines = self.lines.view(4, problems, 1, width)
        self.left, self.right = lines[1:], lines[:3]
        self.scaled = torch.empty_like(self.left)
        self.columns = self.scaled.mT

    def choose(self, *, by_gain: bool) -> None:
        """Choose the entry of each problem that is wrong by the largest q, or q² / (1 + eᵀTe).

        Without the 1, that is twice the gain in the objective. Beside the diagonal the 1 is small,
        but not beside the pivots eᵀTe of nearly dependent rows, which may be mere rounding.
        """
        scores = self.candidates
        if by_gain:
            scores = torch.rsqrt(self.weights, out=self.scores).mul_(scores)
        torch.argmin(scores, -1, keepdim=True, out=self.chosen)

    def is_solved(self) -> bool:
        """Say whether no problem has an entry that is wrong, which the host has to read."""
        return all(index == self.size for (index,) in self.chosen.tolist())

    def pivot(self) -> None:
        """Let the chosen entries change sides."""
        torch.gather(self.twice, -2, self.places, out=self.lines)
        torch.gather(self.diagonal, -1, self.chosen, out=self.pivots.squeeze(-1))
        torch.div(self.left, self.pivots, out=self.scaled)
        self.tables.addcmul_(self.columns, self.right, value=-1)

    def solution(self) -> Tensor:
        """Return the values of the free entries, 0 where they are wrong, and 0 for the others."""
        column, row = self.table[:, : self.size, -1], self.table[:, -1, : self.size]
        return torch.minimum(column, -row).clamp(min=0)


register("gem", GEM)
