"""MAS: a penalty by how sensitive the outputs are to each weight."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from engram.penalties.importance import Importance, TaskPass, Weights, on_all
from engram.penalties.penalty import Penalty, choice

Formula: TypeAlias = Literal["tables", "aljundi"]


class SensitivityImportance(Importance):
    """Ω is the mean absolute gradient of the squared outputs over the task that has ended.

    "tables", as run for the paper's tables: the task's data go through once more in batches; Ω is
    1/N times the sum over batches of |∇ Σ_batch |outputs|²|, N examples in all; what earlier tasks
    left is dropped. "aljundi", the original: of each example, summed over the tasks.
    """

    state: ClassVar[tuple[str, ...]] = ("total",)
    total: list[Tensor]  # Ω
    _measured: list[Tensor]

    def __init__(self, weights: Weights, formula: Formula) -> None:
        super().__init__(weights)
        self._textbook = formula == "aljundi"
        self.task_pass = TaskPass("squared outputs", single=self._textbook)

    def begin_pass(self, weights: Weights) -> None:
        """Begin to sum absolute gradients."""
        self._measured = [torch.zeros_like(each) for each in weights]

    def measure(self, gradients: Weights) -> None:
        """Add an absolute gradient."""
        on_all("add_", self._measured, on_all("abs_", gradients))

    def measured(self) -> list[Tensor]:
        """Return the sum of absolute gradients."""
        return self._measured

    def end_task(
        self,
        weights: Weights,  # noqa: ARG002
        anchors: Weights,  # noqa: ARG002
        *,
        examples: float,
        first: bool,  # noqa: ARG002
    ) -> list[Tensor]:
        """Return Ω with this task's share, or of this task alone."""
        measured, self._measured = self._measured, []
        for total, share in zip(self.total, measured, strict=True):
            share.div_(examples)
            total.add_(share) if self._textbook else total.copy_(share)
        return self.total


class MAS(Penalty):
    """Memory aware synapses: the penalty λ Σ Ω (w − w*)², Ω by how sensitive the outputs are.

    It goes through the task once more when that ends: give ``end_task`` its batches.

    Args:
        strength: λ; there is no 1/2 before it.
        formula: "tables" or "aljundi"; see `SensitivityImportance`. The first one's estimate
            depends on the size of the batches.
    """

    def __init__(self, strength: float = 0.1, *, formula: Formula = "tables") -> None:
        super().__init__(strength)
        self.formula: Formula = choice("formula", formula, ("tables", "aljundi"))

    def importance_for(self, weights: Weights) -> SensitivityImportance:
        """Return an estimate that has seen nothing."""
        return SensitivityImportance(weights, self.formula)
