"""EWC: a penalty by the diagonal of the Fisher matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings
from engram.lab.methods.registry import ALL_TARGETS, Entry, register
from engram.lab.settings import setting
from engram.penalties import FisherImportance, Weights


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

    The formulas are those of `engram.penalties.FisherImportance`.
    """

    state: ClassVar[tuple[str, ...]] = (*Penalty.state, *FisherImportance.state)
    settings: EwcSettings

    def importance_for(self, weights: Weights) -> FisherImportance:
        """Return an estimate that has seen nothing."""
        own = self.settings
        return FisherImportance(weights, own.formula, own.refresh_interval, own.decay)


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
        targets=ALL_TARGETS,
    )
)
