"""EWC: a penalty by the diagonal of the Fisher matrix."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from engram.lab.engine import Batch
from engram.lab.methods.method import FinishedTask, Setup
from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings, scaled, sweep
from engram.lab.methods.registry import Entry, register
from engram.lab.settings import setting


@dataclass(frozen=True)
class EwcSettings(PenaltySettings):
    """Settings of EWC."""

    strength: float = setting(10.0, "lambda, the weight of the penalty (no 1/2 before it)", least=0)
    refresh_interval: int = setting(10, "steps between two updates of the Fisher matrix", least=1)
    decay: float = setting(0.9, "share of the newest window in the Fisher matrix", least=0, most=1)
    formula: Literal["tables", "kirkpatrick"] = setting(
        "tables",
        "tables: squares of batch gradients, the newest windows alone, scaled to [0, 1]; "
        "kirkpatrick: squares of each example's gradient at the end of a task, and a penalty for "
        "every task, each around the weights that task ended with",
    )


class Ewc(Penalty):
    """The penalty λ Σ Ω (w − w*)² of `Penalty`, where Ω is the diagonal of the Fisher matrix.

    As run for the tables: s sums the squares of the batches' gradients; every N steps, before the
    step's own square is added, F <- 0.1 F + 0.9 s/N and s <- 0. At the end of a task Ω is F,
    scaled to [0, 1] over all weights. A task shorter than N leaves F at 0: EWC is then VAN.

    Kirkpatrick's penalties of all tasks, Σ_k F_k (w − w_k)², are one: Ω = Σ_k F_k around the mean
    of the w_k that is weighed by F_k. So a step costs the same, however many tasks there were.
    """

    state: ClassVar[tuple[str, ...]] = (*Penalty.state, "fisher", "squares")
    settings: EwcSettings

    def __init__(self, setup: Setup, settings: EwcSettings) -> None:
        super().__init__(setup, settings)
        self.fisher = torch.zeros_like(self.parameters)  # F
        self.squares = torch.zeros_like(self.parameters)  # s, or the latest task's F_k
        self._stream = setup.stream

    def kind(self, step: int) -> Hashable:
        """Return whether a step refreshes the estimates."""
        return (step + 1) % self.settings.refresh_interval == 0

    def before_step(self, step: int) -> None:
        """Update the running Fisher matrix."""
        if self.settings.formula == "kirkpatrick":
            return
        interval, decay = self.settings.refresh_interval, self.settings.decay
        if (step + 1) % interval == 0:
            self.fisher.mul_(1 - decay).add_(self.squares, alpha=decay / interval)
            self.squares.zero_()
        self.squares.addcmul_(self.gradient, self.gradient)

    def importance(self, finished: FinishedTask) -> Tensor:
        """Return F scaled to [0, 1], or the textbook's sum of Fisher matrices."""
        self.squares.zero_()
        if self.settings.formula == "tables":
            return scaled(self.fisher)
        examples = finished.examples()

        def measure(batch: Batch) -> None:
            self.rows.gradient(batch, self.gradient, training=False)
            self.squares.addcmul_(self.gradient, self.gradient)

        sweep(examples, self._stream, 1, measure)
        return self.fisher.add_(self.squares.div_(examples.labels.shape[1]))

    def next_anchor(self) -> Tensor:
        """Return the weights of the task's end, or the textbook's mean over the ends of tasks."""
        if self.settings.formula == "tables":
            return self.parameters
        share = self.squares.div_(self.fisher).nan_to_num_(0)  # 0/0 where nothing matters
        return torch.lerp(self.anchor, self.parameters, share)


register(
    Entry(
        "ewc",
        Ewc,
        EwcSettings,
        presets={
            "permuted-mnist": {"learning_rate": 0.03},
            "split-cifar": {"learning_rate": 0.03, "strength": 10.0, "refresh_interval": 50},
            "split-cub": {"learning_rate": 0.03, "strength": 1.0, "refresh_interval": 50},
            "split-awa": {"learning_rate": 0.003, "strength": 100.0, "refresh_interval": 50},
        },
        search={"strength": (1.0, 10.0, 100.0, 1e3, 1e4)},
        varies=PENALTY_VARIES,
    )
)
