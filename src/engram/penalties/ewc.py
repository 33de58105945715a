"""EWC: a penalty by the diagonal of the Fisher matrix."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from engram.penalties.importance import Importance, TaskPass, Weights, clear, on_all, scaled
from engram.penalties.penalty import Penalty, choice, number, whole

Formula: TypeAlias = Literal["tables", "kirkpatrick"]


class FisherImportance(Importance):
    """Ω is the diagonal of the Fisher matrix F.

    "tables", as run for the paper's tables: s sums the squares of the batches' gradients; every N
    steps, before the step's own square is added, F <- 0.1 F + 0.9 s/N and s <- 0. At the end of a
    task Ω is F, scaled to [0, 1] over all weights. A task shorter than N leaves F at 0.

    "kirkpatrick", the original: at the end of task k, F_k is the mean square of each example's
    gradient. The penalties of all tasks, Σ_k F_k (w − w_k)², are one: Ω = Σ_k F_k around the mean
    of the w_k that is weighed by F_k. So a step costs the same, however many tasks there were.
    """

    state: ClassVar[tuple[str, ...]] = ("fisher", "squares")
    fisher: list[Tensor]  # F
    squares: list[Tensor]  # s, or the latest task's F_k

    def __init__(self, weights: Weights, formula: Formula, interval: int, decay: float) -> None:
        super().__init__(weights)
        self._interval, self._decay = interval, decay
        self._textbook = formula == "kirkpatrick"
        self.task_pass = TaskPass("loss", single=True) if self._textbook else None

    def refreshes(self, step: int) -> bool:
        """Whether a step refreshes the Fisher matrix."""
        return (step + 1) % self._interval == 0

    def before_step(self, step: int, weights: Weights, gradients: Weights) -> None:  # noqa: ARG002
        """Update the running Fisher matrix."""
        if self._textbook:
            return
        if self.refreshes(step):
            refresh(self.fisher, self.squares, self._interval, self._decay)
            clear(self.squares)
        add_squares(self.squares, gradients)

    def begin_pass(self, weights: Weights) -> None:  # noqa: ARG002
        """Begin to sum the squares of single examples' gradients."""
        clear(self.squares)

    def measure(self, gradients: Weights) -> None:
        """Add the squares of an example's gradient."""
        add_squares(self.squares, gradients)

    def measured(self) -> list[Tensor]:
        """Return the sum of squares."""
        return self.squares

    def end_task(
        self,
        weights: Weights,  # noqa: ARG002
        anchors: Weights,  # noqa: ARG002
        *,
        examples: float,
        first: bool,  # noqa: ARG002
    ) -> list[Tensor]:
        """Return F scaled to [0, 1], or the textbook's sum of Fisher matrices."""
        if not self._textbook:
            clear(self.squares)
            return scaled(self.fisher, stacked=self.stacked)
        for fisher, squares in zip(self.fisher, self.squares, strict=True):
            fisher.add_(squares.div_(examples))
        return self.fisher

    def next_anchor(self, weights: Weights, anchors: Weights) -> Weights:
        """Return the weights of the task's end, or the textbook's mean over the ends of tasks."""
        if not self._textbook:
            return weights
        together = zip(self.squares, self.fisher, anchors, weights, strict=True)
        return [
            torch.lerp(anchor, weight, squares.div_(fisher).nan_to_num_(0))  # 0/0: nothing matters
            for squares, fisher, anchor, weight in together
        ]


def refresh(fisher: Weights, squares: Weights, interval: int, decay: float) -> None:
    """Let the Fisher matrix forget, F <- (1 − decay) F + decay s/N."""
    on_all("mul_", fisher, 1 - decay)
    on_all("add_", fisher, squares, alpha=decay / interval)


def add_squares(squares: Weights, gradients: Weights) -> None:
    """Add the square of each gradient, s <- s + g²."""
    on_all("addcmul_", squares, gradients, gradients)


class EWC(Penalty):
    """Elastic weight consolidation: a penalty λ Σ Ω (w − w*)², Ω of the Fisher matrix.

    Args:
        strength: λ; there is no 1/2 before it.
        refresh_interval: N, the steps between two updates of the Fisher matrix.
        decay: the share of the newest N steps in it.
        formula: "tables" estimates along the way, and scales to [0, 1]; "kirkpatrick" goes through
            the task once more when it ends, example by example. See `FisherImportance`.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    >>> optimizer, penalty = torch.optim.SGD([weight], lr=0.1), EWC(5.0, refresh_interval=2)
    >>> for _ in range(4):  # a task that is about the second weight
    ...     optimizer.zero_grad()
    ...     (weight[1] - 2).square().backward()
    ...     penalty.step(optimizer)
    >>> penalty.end_task()
    >>> held = weight.detach().clone()
    >>> for _ in range(50):  # another one, which is about both
    ...     optimizer.zero_grad()
    ...     (weight + 2).square().sum().backward()
    ...     penalty.step(optimizer)
    >>> bool((weight[1] - held[1]).abs() < (weight[0] - held[0]).abs() / 4)
    True
    """

    def __init__(
        self,
        strength: float = 10.0,
        *,
        refresh_interval: int = 10,
        decay: float = 0.9,
        formula: Formula = "tables",
    ) -> None:
        super().__init__(strength)
        self.refresh_interval = whole("refresh_interval", refresh_interval)
        self.decay = number("decay", decay, least=0, most=1)
        self.formula: Formula = choice("formula", formula, ("tables", "kirkpatrick"))

    def importance_for(self, weights: Weights) -> FisherImportance:
        """Return an estimate that has seen nothing."""
        return FisherImportance(weights, self.formula, self.refresh_interval, self.decay)
