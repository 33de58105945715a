"""MAS: a penalty by how sensitive the outputs are to each weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings
from engram.lab.methods.registry import ALL_TARGETS, Entry, register
from engram.lab.settings import setting
from engram.penalties import SensitivityImportance, Weights


@dataclass(frozen=True)
class MasSettings(PenaltySettings):
    """Settings of MAS."""

    strength: float = setting(0.1, "lambda, the weight of the penalty (no 1/2 before it)", least=0)
    formula: Literal["tables", "aljundi"] = setting(
        "tables",
        "tables: absolute gradients of whole batches, of the latest task alone; "
        "aljundi: of each example, summed over the tasks",
    )


class Mas(Penalty):
    """Ω is the mean absolute gradient of the squared logits over the task that has ended.

    The formulas are those of `engram.penalties.SensitivityImportance`.
    """

    state: ClassVar[tuple[str, ...]] = (*Penalty.state, *SensitivityImportance.state)
    settings: MasSettings

    def importance_for(self, weights: Weights) -> SensitivityImportance:
        """Return an estimate that has seen nothing."""
        own = self.settings
        return SensitivityImportance(weights, own.formula)


register(
    Entry(
        "mas",
        Mas,
        MasSettings,
        presets={
            "split-cifar": {"learning_rate": 0.03, "strength": 0.1},
            "split-cub": {"learning_rate": 0.03, "strength": 0.1},
            "split-awa": {"learning_rate": 0.003, "strength": 1.0},
        },
        search={"strength": (0.01, 0.1, 1.0, 10.0)},
        varies=PENALTY_VARIES,
        targets=ALL_TARGETS,
    )
)
