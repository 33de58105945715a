"""MEGA-II: rotate the current gradient towards the memory's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engram.errors import EngramError, shown
from engram.rules.pair import KernelFormula, Number, Pair, PairRule, choose, clip, keep, root
from engram.rules.rule import check_range, register


@dataclass(frozen=True)
class MEGA2(PairRule):
    """MEGA-II: the current gradient g, rotated towards the memory's r, its length kept.

    The paper's angle maximises l_t cos(β) + l_ref cos(θ̃ − β), the dot product of the direction
    sought with l_t ĝ + l_ref r̂ (hats are unit vectors). The maximiser is that vector, normalised:

        N = |l_t ĝ + l_ref r̂|        weights = (l_t / N,  l_ref / N · |g| / |r|)

    so that |update| = |g|. The update is g, weights (1, 0), where no direction is defined: a
    gradient or both losses are 0, or N is 0 up to the precision of ``gram`` (opposite gradients and
    equal losses). A negative loss counts as 0; a training step refuses it.

    ``balance=False`` takes l_t = l_ref, the bisector of the gradients: the paper's ablation.

    ``max_angle`` is the largest rotation, from 0 to π. Where the best angle is larger, the update
    is g rotated by ``max_angle`` in the plane of both gradients, or g if they span none. The
    authors' released code stops at π/2; the paper does not stop.

    ``least_area``: where |g|²|r|² − (g·r)² is at most this, the update is g. The authors' released
    code has 1e-10, an absolute number, so it also leaves g alone once the memory's loss is next
    to 0 and r is rounding noise; without balance nothing else does.

    >>> import torch
    >>> orthogonal = torch.tensor([[4.0, 0.0], [0.0, 1.0]])
    >>> MEGA2()(torch.tensor([3.0, 4.0]), orthogonal)
    tensor([0.6000, 1.6000])
    """

    needs_gram = True
    reference = "pooled"

    balance: bool = True
    max_angle: float = math.pi
    least_area: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.balance, bool):
            raise EngramError(f"balance must be True or False, not {shown(self.balance)}.")
        check_range("max_angle", self.max_angle, math.pi)
        check_range("least_area", self.least_area)

    @property
    def compares_losses(self) -> bool:
        """Whether the losses decide on the angle, as they do with ``balance``."""
        return self.balance

    def weigh_pair(
        self, losses: Pair, products: tuple[Number, Number, Number], precision: torch.finfo
    ) -> Pair:
        """Return the weights of g and r."""
        # An error e in the cosine is an error e / 4N² in |update|, for losses that sum to 1. Where
        # this would cost more than half of the digits, the direction counts as undefined.
        tolerance = math.sqrt(precision.eps)
        current_square, product, reference_square = products
        current_length, reference_length = root(current_square), root(reference_square)
        # Two divisions: the product of the lengths may overflow, or underflow.
        cosine = clip(product / current_length / reference_length, -1.0, 1.0)

        current, reference = self._shares(losses)
        # |l_t ĝ + l_ref r̂|² as the sum of two terms >= 0: nothing cancels but 1 + cosine.
        apart = current - reference
        square = apart * apart + 2 * current * reference * (1 + cosine)
        defined = (square > tolerance) & (current_square >= precision.tiny)
        defined = defined & (reference_square >= precision.tiny)
        if self.least_area:
            sine = root((1 - cosine) * (1 + cosine))
            side = math.sqrt(self.least_area)  # of lengths, whose squares might overflow
            defined = defined & (current_length * reference_length * sine > side)
        length = root(square)
        along, towards = current / length, reference / length
        if self.max_angle < math.pi:
            beyond = current + reference * cosine < math.cos(self.max_angle) * length
            # Likewise e / sin² here; and next to opposite gradients and equal losses, sin² = 4N².
            square_sine = (1 - cosine) * (1 + cosine)
            defined = choose(beyond, defined & (square_sine > 4 * tolerance), defined)
            turn = math.sin(self.max_angle) / root(square_sine)
            along = choose(beyond, math.cos(self.max_angle) - turn * cosine, along)
            towards = choose(beyond, turn, towards)
        towards = towards * (current_length / reference_length)
        return keep(defined, along, 1.0), keep(defined, towards, 0.0)

    def _kernel_formula(self, precision: torch.finfo) -> KernelFormula:
        limits = math.cos(self.max_angle), math.sin(self.max_angle)
        return KernelFormula(
            "mega2",
            (self.balance, self.max_angle < math.pi, self.least_area > 0),
            (math.sqrt(precision.eps), precision.tiny, *limits, math.sqrt(self.least_area)),
        )

    def _shares(self, losses: Pair) -> Pair:
        """Return the losses as shares of their sum, so that no power of them overflows."""
        current, reference = losses
        if not self.balance:
            half = 0 * current + 0.5
            return half, half
        current, reference = clip(current, 0.0), clip(reference, 0.0)
        total = current + reference
        return current / total, reference / total


register("mega-ii", MEGA2)
