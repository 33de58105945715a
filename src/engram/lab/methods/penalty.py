"""The methods that hold important weights in place, for R runs: a penalty and an importance each.

The mathematics of the importances is in `engram.penalties`, which serves one's own loop as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from engram.gradients import Mix
from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import Batch, CudaGraphLoop, absorbed, mean_loss
from engram.lab.methods.method import FinishedTask, Method, MethodSettings, Setup
from engram.lab.settings import setting
from engram.penalties import Importance, Weights


@dataclass(frozen=True)
class PenaltySettings(MethodSettings):
    """Settings of every penalty."""

    strength: float = setting(1.0, "lambda, the weight of the penalty (no 1/2 before it)", least=0)


PENALTY_VARIES = ("learning_rate", "strength")


class Penalty(Method):
    """Trains on loss + λ Σ Ω (w − w*)², w* the weights at the end of the task before.

    The gradient of the penalty is 2 λ Ω (w − w*); there is none in the first task. ``gradient``
    is the loss's own gradient in the current step, without the penalty. How Ω is estimated along
    the way, and what it is when a task ends, is the business of an `engram.penalties.Importance`,
    which a method names; what that gathers is an attribute of the method, [R, d]. The cost of a
    step does not depend on the number of tasks.
    """

    state: ClassVar[tuple[str, ...]] = (*Method.state, "anchor", "penalty_weight", "penalised")
    former_names: ClassVar[Mapping[str, str]] = {"penalty_weight": "pull", "path_integral": "fall"}
    capturable = True
    settings: PenaltySettings

    def __init__(self, setup: Setup, settings: PenaltySettings) -> None:
        super().__init__(setup, settings)
        self._stream = setup.stream
        self._last_task = setup.stream.tasks - 1
        self._strength = setup.number(settings, "strength")  # λ
        self.gradient = torch.empty_like(self.parameters)
        self.anchor = self.parameters.clone()  # w*
        self.penalty_weight = torch.zeros_like(self.parameters)  # 2 λ Ω
        self.penalised = False
        self.estimate = self.importance_for([self.parameters])
        self.estimate.stacked = True
        for name in self.estimate.state:
            (gathered,) = getattr(self.estimate, name)
            setattr(self, name, gathered)  # the same tensor, which the estimate changes in place

    @abstractmethod
    def importance_for(self, weights: Weights) -> Importance:
        """Return the estimate of Ω, which has seen nothing."""

    def kind(self, step: int) -> Hashable:
        """Return whether a step refreshes the estimate."""
        return self.estimate.refreshes(step)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take a step on the penalised loss."""
        losses = self.rows.gradient(batch, self.gradient).unsqueeze(-1)
        self.estimate.before_step(step, [self.parameters], [self.gradient])
        update = self.gradient
        if self.penalised:
            update = torch.addcmul(
                self.gradient, self.penalty_weight, self.parameters - self.anchor
            )
        self._descend(update)
        return Mix(losses, None, torch.ones_like(losses))

    def _descend(self, update: Tensor) -> None:
        """Take the step, and add up how far the loss fell along each weight: gradient · way."""
        if not self.estimate.follows_path:
            self.rows.descend(update, self.learning_rate)
        elif self.optimizer is None:  # the way is rate · update
            self.rows.descend(update, self.learning_rate)
            gradient, rate = absorbed(self.gradient, self.learning_rate)
            self.estimate.extend_path([gradient], [update], rate)
        else:
            before = self.parameters.clone()
            self.rows.descend(update, self.learning_rate)
            self.estimate.extend_path([self.gradient], [before.sub_(self.parameters)], 1.0)

    def end_task(self, task: int, finished: FinishedTask) -> None:
        """Estimate the importance of every weight, and hold it from here on."""
        if task == self._last_task:
            return
        weights, anchors = [self.parameters], [self.anchor]
        examples = self._measure(finished) if self.estimate.task_pass else 0
        (importance,) = self.estimate.end_task(
            weights, anchors, examples=examples, first=not self.penalised
        )
        torch.mul(importance, 2 * self._strength, out=self.penalty_weight)
        (anchor,) = self.estimate.next_anchor(weights, anchors)
        self.anchor.copy_(anchor)
        self.penalised = True

    def _measure(self, finished: FinishedTask) -> int:
        """Pass over the task once more, and return the number of its examples."""
        task_pass = self.estimate.task_pass
        assert task_pass is not None
        objective = mean_loss if task_pass.of == "loss" else _squared_logits
        examples = finished.examples()
        self.estimate.begin_pass([self.parameters])

        def measure(batch: Batch) -> None:
            self.rows.gradient(batch, self.gradient, objective, training=False)
            self.estimate.measure([self.gradient])

        size = 1 if task_pass.single else self.settings.batch_size
        sweep(examples, self._stream, size, measure, capture=self.captured)
        return examples.labels.shape[1]


def _squared_logits(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    if batch.outputs is not None:  # the logits of the example's own task alone
        logits = logits * batch.outputs
    return logits.square().sum((-2, -1)).unsqueeze(-1), 2 * logits


def sweep(
    examples: Examples,
    stream: Stream,
    size: int,
    measure: Callable[[Batch], None],
    *,
    capture: bool,
) -> None:
    """Measure the task in the order it was seen, in batches of ``size``.

    With ``capture`` that reads nothing back to the host: on a GPU it is captured and replayed.
    """
    loop = CudaGraphLoop(examples, size, capture=capture)
    while loop.step < len(loop):
        with loop.advance(len(loop)) as steps:
            for _, stored, labels, _ in steps:
                measure(stream.batch(stored, labels))
