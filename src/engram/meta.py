"""MER: how a batch is gone through, example by example, and how much of the way is kept.

`MER` is given to a `Learner`; the laboratory's method takes the same steps for many runs at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from engram.errors import EngramError, shown

__all__ = ["MER", "Algorithm", "meta_steps"]

Algorithm: TypeAlias = Literal["one-batch", "batches"]
Example = TypeVar("Example")
Loss = TypeVar("Loss")
Weights = TypeVar("Weights")
Share = TypeVar("Share")


@dataclass(frozen=True)
class MER:
    """Meta-experience replay (Riemer et al. 2019): SGD on single examples, of which a part is kept.

    For every incoming example, w₀ being the weights before it and each single example one step:

    - "one-batch" (Algorithm 6): k − 1 draws, then the example; w <- w₀ + γ (w − w₀).
    - "batches" (Algorithm 1): s times, from w_b: the example, then k − 1 draws;
      w <- w_b + β (w − w_b). Then w <- w₀ + γ (w − w₀).

    Draws are from all that is remembered, with replacement; a memory of fewer than k − 1 gives as
    many as it holds. Then the example is offered to the memory, a `Reservoir` by its authors.

    Args:
        gamma: γ.
        draws: k − 1.
        algorithm: "one-batch" or "batches".
        beta: β, of "batches".
        batches: s, of "batches".
    """

    gamma: float = 0.1
    draws: int = 50
    algorithm: Algorithm = "one-batch"
    beta: float = 0.03
    batches: int = 10

    def __post_init__(self) -> None:
        for name in ("gamma", "beta"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                raise EngramError(f"{name} must be a number above 0, not {shown(value)}.")
        for name, least in (("draws", 0), ("batches", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise EngramError(
                    f"{name} must be a whole number of at least {least}, not {shown(value)}."
                )
        if self.algorithm not in ("one-batch", "batches"):
            raise EngramError(
                f"algorithm must be one-batch or batches, not {shown(self.algorithm)}."
            )

    @property
    def rounds(self) -> int:
        """How many sequences of draws an example takes."""
        return 1 if self.algorithm == "one-batch" else self.batches


def meta_steps(
    example: Example,
    drawn: Iterable[Sequence[Example]],
    *,
    step: Callable[[Example], Loss],
    mark: Callable[[], Weights],
    keep: Callable[[Weights, Share], None],
    algorithm: Algorithm,
    gamma: Share,
    beta: Share,
) -> list[Loss]:
    """Go through an example and each round's draws; return its loss in each round.

    ``step`` takes a step on a single example, ``mark`` returns a copy of the weights, and ``keep``
    goes back to one and from there a share of the way.
    """
    start, losses = mark(), []
    for of_round in drawn:
        before = None if algorithm == "one-batch" else mark()
        if before is not None:
            losses.append(step(example))
        for each in of_round:
            step(each)
        if before is None:
            losses.append(step(example))
        else:
            keep(before, beta)
    keep(start, gamma)
    return losses
