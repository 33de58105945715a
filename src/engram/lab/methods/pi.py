"""PI (synaptic intelligence): a penalty by how much each weight lowered the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from engram.lab.methods.method import FinishedTask, Setup
from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings
from engram.lab.methods.registry import Entry, register
from engram.lab.settings import setting


@dataclass(frozen=True)
class PiSettings(PenaltySettings):
    """Settings of PI."""

    strength: float = setting(0.1, "lambda, the weight of the penalty (no 1/2 before it)", least=0)
    damping: float = setting(1e-3, "xi, added to the squared distance travelled", above=0)
    formula: Literal["tables", "zenke"] = setting(
        "tables",
        "tables: a task that raised the loss along a weight counts 0 for it; "
        "zenke: it counts against it",
    )


class Pi(Penalty):
    """Ω sums, over tasks, the fall of the loss along each weight over the distance travelled.

    ω −= g · (w_new − w_old) at every step, g the gradient of the loss without the penalty. At
    the end of a task Ω += relu(ω / (ξ + (w − w_start)²)) and ω <- 0.
    """

    state: ClassVar[tuple[str, ...]] = (*Penalty.state, "path_integral", "total")
    settings: PiSettings

    def __init__(self, setup: Setup, settings: PiSettings) -> None:
        super().__init__(setup, settings)
        self.path_integral = torch.zeros_like(self.parameters)  # ω
        self.total = torch.zeros_like(self.parameters)  # Ω

    def after_step(self, update: Tensor) -> None:
        """Add this step's fall of the loss along each weight."""
        self.extend_path(self.path_integral, update)

    def importance(self, finished: FinishedTask) -> Tensor:  # noqa: ARG002
        """Return Ω with this task's share added."""
        # The anchor is still where the task before this one ended.
        travelled = (self.parameters - self.anchor).square_()
        share = self.path_integral / (self.settings.damping + travelled)
        self.total.add_(share if self.settings.formula == "zenke" else share.relu_())
        self.path_integral.zero_()
        return self.total


register(
    Entry(
        "pi",
        Pi,
        PiSettings,
        # The published setting (0.1 and 0.1) diverges in task 2. This one was chosen on seventeen
        # tuning tasks: docs/results/permuted-mnist-tuning.md.
        presets={
            "permuted-mnist": {"learning_rate": 0.03, "strength": 1e-3},
            "split-cifar": {"learning_rate": 0.01, "strength": 0.1},
            "split-cub": {"learning_rate": 0.03, "strength": 0.1},
            "split-awa": {"learning_rate": 0.003, "strength": 1.0},
        },
        search={"learning_rate": (0.1, 0.03, 0.01), "strength": (1e-3, 1e-2, 0.1, 1.0, 10.0)},
        varies=PENALTY_VARIES,
    )
)
