"""RWALK: a penalty by the Fisher matrix and a path score, together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from engram.lab.methods.method import FinishedTask, Setup
from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings, scaled
from engram.lab.methods.registry import Entry, register
from engram.lab.settings import setting


@dataclass(frozen=True)
class RwalkSettings(PenaltySettings):
    """Settings of RWALK."""

    refresh_interval: int = setting(10, "steps between two updates of Fisher and score", least=1)
    decay: float = setting(0.9, "share of the newest window in the Fisher matrix", least=0, most=1)
    damping: float = setting(1e-3, "added to the squared distance travelled", above=0)
    formula: Literal["tables", "chaudhry"] = setting(
        "tables",
        "tables: the sum of squares runs on to the end of the task, the scores of tasks add up "
        "(S <- 1.5 S + 0.5 score); chaudhry: it starts anew each window, scores are averaged, "
        "and the distance travelled is F/2 (w - w_last)^2",
    )


class Rwalk(Penalty):
    """Ω is the Fisher matrix plus the fall of the loss over the distance in its metric.

    ω as in PI. Every N steps, before the step's own square is added: score += relu(ω / (ξ +
    F (w − w_last)²)); F <- 0.1 F + 0.9 s/N; w_last <- w; ω <- 0. At the end of a task S takes the
    score in, and Ω is F and S, each scaled to [0, 1]. A task shorter than N leaves both at 0.
    """

    state: ClassVar[tuple[str, ...]] = (
        *Penalty.state, "fisher", "squares", "path_integral", "score", "total", "last",
    )  # fmt: skip
    settings: RwalkSettings

    def __init__(self, setup: Setup, settings: RwalkSettings) -> None:
        super().__init__(setup, settings)
        self.fisher = torch.zeros_like(self.parameters)  # F
        self.squares = torch.zeros_like(self.parameters)  # s
        self.path_integral = torch.zeros_like(self.parameters)  # ω
        self.score = torch.zeros_like(self.parameters)  # of the current task
        self.total = torch.zeros_like(self.parameters)  # S
        self.last = self.parameters.clone()  # w_last

    def kind(self, step: int) -> Hashable:
        """Return whether a step refreshes the estimates."""
        return (step + 1) % self.settings.refresh_interval == 0

    def before_step(self, step: int) -> None:
        """Update score and Fisher matrix, then add this step's square."""
        if (step + 1) % self.settings.refresh_interval == 0:
            self._refresh()
        self.squares.addcmul_(self.gradient, self.gradient)

    def after_step(self, update: Tensor) -> None:
        """Add this step's fall of the loss along each weight."""
        self.extend_path(self.path_integral, update)

    def _refresh(self) -> None:
        interval, decay = self.settings.refresh_interval, self.settings.decay
        textbook = self.settings.formula == "chaudhry"
        distance = (self.parameters - self.last).square_().mul_(self.fisher)
        if textbook:
            distance.div_(2)  # as in the expansion of the Kullback-Leibler divergence
        self.score.add_(self.path_integral.div_(distance.add_(self.settings.damping)).relu_())
        self.fisher.mul_(1 - decay).add_(self.squares, alpha=decay / interval)
        self.last.copy_(self.parameters)
        self.path_integral.zero_()
        if textbook:
            self.squares.zero_()

    def importance(self, finished: FinishedTask) -> Tensor:  # noqa: ARG002
        """Take the task's score in, and return Fisher matrix and score, each scaled."""
        if not self.penalised:
            self.score.mul_(2)  # so that the first task's score is not halved below
        mean = (self.total + self.score).div_(2)
        self.total.copy_(mean) if self.settings.formula == "chaudhry" else self.total.add_(mean)
        self.last.copy_(self.parameters)
        for gathered in (self.score, self.path_integral, self.squares):
            gathered.zero_()
        return scaled(self.total).add_(scaled(self.fisher))


register(
    Entry(
        "rwalk",
        Rwalk,
        RwalkSettings,
        presets={
            "split-cifar": {"learning_rate": 0.03, "strength": 1.0, "refresh_interval": 50},
            "split-cub": {"learning_rate": 0.03, "strength": 1.0, "refresh_interval": 50},
            "split-awa": {"learning_rate": 0.003, "strength": 10.0, "refresh_interval": 50},
        },
        search={"strength": (0.1, 1.0, 10.0, 100.0, 1e3)},
        varies=PENALTY_VARIES,
    )
)
