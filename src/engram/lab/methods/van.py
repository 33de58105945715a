"""VAN: plain training, one task after another. And MULTI-TASK: the same on all tasks at once."""

from __future__ import annotations

from torch import Tensor

from engram.gradients import Mix
from engram.lab.engine import Batch
from engram.lab.methods.method import Method, MethodSettings
from engram.lab.methods.registry import ALL_TARGETS, LEARNING_RATES, Entry, always, register
from engram.rules import Current


class Van(Method):
    """w <- w - rate * gradient of the current batch's loss."""

    capturable = True
    settings: MethodSettings

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take a plain step."""
        return self.rows.step(Current(), self.learning_rate, batch, None)


register(
    Entry(
        "van",
        Van,
        MethodSettings,
        presets={
            "permuted-mnist": {"learning_rate": 0.03},
            "split-cifar": {"learning_rate": 0.01},
            "split-cub": {"learning_rate": 0.03},
            "split-awa": {"learning_rate": 0.001},
        },
        search=LEARNING_RATES,
        varies=tuple(LEARNING_RATES),
        targets=ALL_TARGETS,
        boundless=always,
    )
)
register(
    Entry(
        "multi-task",
        Van,
        MethodSettings,
        presets={
            name: {"learning_rate": 0.03}
            for name in ("permuted-mnist", "split-cifar", "split-cub", "split-awa")
        },
        search=LEARNING_RATES,
        varies=tuple(LEARNING_RATES),
        targets=ALL_TARGETS,
        boundless=always,
        joint=True,
    )
)
