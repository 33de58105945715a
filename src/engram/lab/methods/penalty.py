"""The methods that hold important weights in place: one penalty, an estimate of importance each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from engram.gradients import Mix
from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import Batch, CudaGraphLoop, absorbed
from engram.lab.methods.method import FinishedTask, Method, MethodSettings, Setup
from engram.lab.settings import setting


@dataclass(frozen=True)
class PenaltySettings(MethodSettings):
    """Settings of every penalty."""

    strength: float = setting(1.0, "lambda, the weight of the penalty (no 1/2 before it)", least=0)


PENALTY_VARIES = ("learning_rate", "strength")


class Penalty(Method):
    """Trains on loss + λ Σ Ω (w − w*)², w* the weights at the end of the task before.

    The gradient of the penalty is 2 λ Ω (w − w*); there is none in the first task. ``gradient``
    is the loss's own gradient in the current step, without the penalty. A method says how it
    gathers what it knows along the way (``before_step``, ``after_step``) and what the importance
    Ω is when a task ends (``importance``). The cost of a step does not depend on the number of
    tasks.
    """

    state: ClassVar[tuple[str, ...]] = (*Method.state, "anchor", "penalty_weight", "penalised")
    former_names: ClassVar[Mapping[str, str]] = {"penalty_weight": "pull", "path_integral": "fall"}
    capturable = True
    settings: PenaltySettings

    def __init__(self, setup: Setup, settings: PenaltySettings) -> None:
        super().__init__(setup, settings)
        self._last_task = setup.stream.tasks - 1
        self._strength = setup.number(settings, "strength")  # λ
        self.gradient = torch.empty_like(self.parameters)
        self.anchor = self.parameters.clone()  # w*
        self.penalty_weight = torch.zeros_like(self.parameters)  # 2 λ Ω
        self.penalised = False

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take a step on the penalised loss."""
        losses = self.rows.gradient(batch, self.gradient).unsqueeze(-1)
        self.before_step(step)
        update = self.gradient
        if self.penalised:
            update = torch.addcmul(
                self.gradient, self.penalty_weight, self.parameters - self.anchor
            )
        self.rows.descend(update, self.learning_rate)
        self.after_step(update)
        return Mix(losses, None, torch.ones_like(losses))

    def end_task(self, task: int, finished: FinishedTask) -> None:
        """Estimate the importance of every weight, and hold it from here on."""
        if task == self._last_task:
            return
        torch.mul(self.importance(finished), 2 * self._strength, out=self.penalty_weight)
        self.anchor.copy_(self.next_anchor())
        self.penalised = True

    def before_step(self, step: int) -> None:
        """Use the gradient of the task's batch number ``step`` before the weights move."""

    def after_step(self, update: Tensor) -> None:
        """Use the step that was taken: the weights moved by −learning_rate · update."""

    def extend_path(self, path_integral: Tensor, update: Tensor) -> None:
        """Add how far the loss fell along each weight in the step: rate · gradient · update."""
        gradient, rate = absorbed(self.gradient, self.learning_rate)
        path_integral.addcmul_(gradient, update, value=rate)

    @abstractmethod
    def importance(self, finished: FinishedTask) -> Tensor:
        """Return Ω, [R, d]."""

    def next_anchor(self) -> Tensor:
        """Return w*, [R, d], once the importance is known."""
        return self.parameters


def scaled(importance: Tensor) -> Tensor:
    """Scale each run's importance to [0, 1], by its smallest and largest over all weights.

    >>> scaled(torch.tensor([[2.0, 4.0, 3.0], [0.0, 0.0, 0.0], [7.0, 7.0, 7.0]])).tolist()
    [[0.0, 1.0, 0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    least, most = importance.aminmax(dim=-1, keepdim=True)
    return (importance - least) / (most - least + 1e-32)


def sweep(examples: Examples, stream: Stream, size: int, measure: Callable[[Batch], None]) -> None:
    """Measure the task in the order it was seen, in batches of ``size``.

    ``measure`` reads nothing back to the host: on a GPU it is captured and replayed.
    """
    loop = CudaGraphLoop(examples, size, capture=True)
    while loop.step < len(loop):
        with loop.advance(len(loop)) as steps:
            for _, stored, labels, _ in steps:
                measure(stream.batch(stored, labels))
