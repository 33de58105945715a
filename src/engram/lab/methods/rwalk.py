"""RWALK: a penalty by the Fisher matrix and a path score, together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings
from engram.lab.methods.registry import ALL_TARGETS, Entry, register
from engram.lab.settings import setting
from engram.penalties import WalkImportance, Weights


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

    The formulas are those of `engram.penalties.WalkImportance`.
    """

    state: ClassVar[tuple[str, ...]] = (*Penalty.state, *WalkImportance.state)
    settings: RwalkSettings

    def importance_for(self, weights: Weights) -> WalkImportance:
        """Return an estimate that has seen nothing."""
        own = self.settings
        return WalkImportance(weights, own.formula, own.refresh_interval, own.decay, own.damping)


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
        targets=ALL_TARGETS,
    )
)
