"""MAS: a penalty by how sensitive the outputs are to each weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from engram.lab.engine import Batch
from engram.lab.methods.method import FinishedTask, Setup
from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings, sweep
from engram.lab.methods.registry import Entry, register
from engram.lab.settings import setting


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

    As run for the tables: the task's data go through once more in batches; Ω is 1/N times the sum
    over batches of |∇ Σ_batch |logits|²|, N examples in all; what earlier tasks left is dropped.
    """

    state: ClassVar[tuple[str, ...]] = (*Penalty.state, "total")
    settings: MasSettings

    def __init__(self, setup: Setup, settings: MasSettings) -> None:
        super().__init__(setup, settings)
        self.total = torch.zeros_like(self.parameters)  # Ω
        self._stream = setup.stream

    def importance(self, finished: FinishedTask) -> Tensor:
        """Pass over the task and return Ω."""
        textbook = self.settings.formula == "aljundi"
        examples = finished.examples()
        size = 1 if textbook else self.settings.batch_size
        measured = torch.zeros_like(self.total)

        def measure(batch: Batch) -> None:
            self.rows.gradient(batch, self.gradient, _squared_logits, training=False)
            measured.add_(self.gradient.abs_())

        sweep(examples, self._stream, size, measure)
        measured.div_(examples.labels.shape[1])
        return self.total.add_(measured) if textbook else self.total.copy_(measured)


def _squared_logits(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    if batch.outputs is not None:  # the logits of the example's own task alone
        logits = logits * batch.outputs
    return logits.square().sum((-2, -1)).unsqueeze(-1), 2 * logits


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
    )
)
