"""PI (synaptic intelligence): a penalty by how much each weight lowered the loss."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from torch import Tensor

from engram.penalties.importance import Importance, Weights, clear, on_all
from engram.penalties.penalty import Penalty, choice, number

Formula: TypeAlias = Literal["tables", "zenke"]


class PathImportance(Importance):
    """Ω sums, over tasks, the fall of the loss along each weight over the distance travelled.

    ω −= g · (w_new − w_old) at every step, g the gradient of the loss without the penalty. At
    the end of a task Ω += relu(ω / (ξ + (w − w_start)²)) and ω <- 0; without the relu for "zenke",
    where a task that raised the loss along a weight counts against it.
    """

    state: ClassVar[tuple[str, ...]] = ("path_integral", "total")
    follows_path: ClassVar[bool] = True
    path_integral: list[Tensor]  # ω
    total: list[Tensor]  # Ω

    def __init__(self, weights: Weights, formula: Formula, damping: float) -> None:
        super().__init__(weights)
        self._textbook, self._damping = formula == "zenke", damping

    def extend_path(self, gradients: Weights, steps: Weights, scale: float) -> None:
        """Add how far the loss fell along each weight."""
        add_products(self.path_integral, gradients, steps, scale)

    def end_task(
        self,
        weights: Weights,
        anchors: Weights,
        *,
        examples: float,  # noqa: ARG002
        first: bool,  # noqa: ARG002
    ) -> list[Tensor]:
        """Return Ω with this task's share added; the anchor is where the task before it ended."""
        together = zip(weights, anchors, self.path_integral, self.total, strict=True)
        for weight, anchor, path, total in together:
            share = path / (self._damping + (weight - anchor).square_())
            total.add_(share if self._textbook else share.relu_())
        clear(self.path_integral)
        return self.total


def add_products(totals: Weights, gradients: Weights, steps: Weights, scale: float) -> None:
    """Add ``scale`` · gradient · step to each total."""
    on_all("addcmul_", totals, gradients, steps, value=scale)


class PI(Penalty):
    """Synaptic intelligence: a penalty λ Σ Ω (w − w*)², Ω by how weights lowered the loss.

    Args:
        strength: λ; there is no 1/2 before it.
        damping: ξ, added to the squared distance travelled.
        formula: "tables" or "zenke"; see `PathImportance`.
    """

    def __init__(
        self, strength: float = 0.1, *, damping: float = 1e-3, formula: Formula = "tables"
    ) -> None:
        super().__init__(strength)
        self.damping = number("damping", damping, above=0)
        self.formula: Formula = choice("formula", formula, ("tables", "zenke"))

    def importance_for(self, weights: Weights) -> PathImportance:
        """Return an estimate that has seen nothing."""
        return PathImportance(weights, self.formula, self.damping)
