"""RWALK: a penalty by the Fisher matrix and a path score, together."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from torch import Tensor

from engram.penalties.ewc import add_squares, refresh
from engram.penalties.importance import Importance, Weights, clear, on_all, scaled
from engram.penalties.penalty import Penalty, choice, number, whole
from engram.penalties.pi import add_products

Formula: TypeAlias = Literal["tables", "chaudhry"]


class WalkImportance(Importance):
    """Ω is the Fisher matrix plus the fall of the loss over the distance in its metric.

    ω as in PI. Every N steps, before the step's own square is added: score += relu(ω / (ξ +
    F (w − w_last)²)); F <- 0.1 F + 0.9 s/N; w_last <- w; ω <- 0. At the end of a task S takes the
    score in, and Ω is F and S, each scaled to [0, 1]. A task shorter than N leaves both at 0.

    "tables", as run for the paper's tables: s runs on to the end of the task, and the scores of
    tasks add up, S <- 1.5 S + 0.5 score. "chaudhry", the original: s starts anew each window, the
    scores are averaged, and the distance travelled is F/2 (w − w_last)².
    """

    state: ClassVar[tuple[str, ...]] = (
        "fisher", "squares", "path_integral", "score", "total", "last",
    )  # fmt: skip
    follows_path: ClassVar[bool] = True
    fisher: list[Tensor]  # F
    squares: list[Tensor]  # s
    path_integral: list[Tensor]  # ω
    score: list[Tensor]  # of the current task
    total: list[Tensor]  # S
    last: list[Tensor]  # w_last

    def __init__(
        self, weights: Weights, formula: Formula, interval: int, decay: float, damping: float
    ) -> None:
        super().__init__(weights)
        self._interval, self._decay, self._damping = interval, decay, damping
        self._textbook = formula == "chaudhry"

    def initial(self, name: str, weight: Tensor) -> Tensor:
        """Return 0, but for the weights of the last refresh."""
        return weight.clone() if name == "last" else super().initial(name, weight)

    def refreshes(self, step: int) -> bool:
        """Whether a step refreshes the estimates."""
        return (step + 1) % self._interval == 0

    def before_step(self, step: int, weights: Weights, gradients: Weights) -> None:
        """Update score and Fisher matrix, then add this step's square."""
        if self.refreshes(step):
            self._refresh(weights)
        add_squares(self.squares, gradients)

    def extend_path(self, gradients: Weights, steps: Weights, scale: float) -> None:
        """Add how far the loss fell along each weight."""
        add_products(self.path_integral, gradients, steps, scale)

    def _refresh(self, weights: Weights) -> None:
        distances = on_all("sub", weights, self.last)
        on_all("mul_", distances, distances)
        on_all("mul_", distances, self.fisher)
        if self._textbook:
            on_all("div_", distances, 2)  # as the Kullback-Leibler divergence expands
        on_all("add_", distances, self._damping)
        on_all("clamp_min_", self.path_integral, 0)  # distances are above 0: the sign is the same
        on_all("addcdiv_", self.score, self.path_integral, distances)
        on_all("copy_", self.last, weights)
        refresh(self.fisher, self.squares, self._interval, self._decay)
        clear(self.path_integral)
        if self._textbook:
            clear(self.squares)

    def end_task(
        self,
        weights: Weights,
        anchors: Weights,  # noqa: ARG002
        *,
        examples: float,  # noqa: ARG002
        first: bool,
    ) -> list[Tensor]:
        """Take the task's score in, and return Fisher matrix and score, each scaled."""
        for weight, last, score, total in zip(
            weights, self.last, self.score, self.total, strict=True
        ):
            if first:
                score.mul_(2)  # so that the first task's score is not halved below
            mean = (total + score).div_(2)
            total.copy_(mean) if self._textbook else total.add_(mean)
            last.copy_(weight)
        clear(self.score, self.path_integral, self.squares)
        shares = (scaled(each, stacked=self.stacked) for each in (self.total, self.fisher))
        return on_all("add_", *shares)


class RWALK(Penalty):
    """Riemannian walk: the penalty λ Σ Ω (w − w*)², Ω the Fisher matrix and a path score.

    Args:
        strength: λ; there is no 1/2 before it.
        refresh_interval: N, the steps between two updates of Fisher matrix and score.
        decay: the share of the newest N steps in the Fisher matrix.
        damping: ξ, added to the squared distance travelled.
        formula: "tables" or "chaudhry"; see `WalkImportance`.
    """

    def __init__(
        self,
        strength: float = 1.0,
        *,
        refresh_interval: int = 10,
        decay: float = 0.9,
        damping: float = 1e-3,
        formula: Formula = "tables",
    ) -> None:
        super().__init__(strength)
        self.refresh_interval = whole("refresh_interval", refresh_interval)
        self.decay = number("decay", decay, least=0, most=1)
        self.damping = number("damping", damping, above=0)
        self.formula: Formula = choice("formula", formula, ("tables", "chaudhry"))

    def importance_for(self, weights: Weights) -> WalkImportance:
        """Return an estimate that has seen nothing."""
        return WalkImportance(
            weights, self.formula, self.refresh_interval, self.decay, self.damping
        )
