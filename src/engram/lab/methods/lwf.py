"""LwF: new tasks are learned while the network keeps to what it answered before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from engram.gradients import Mix
from engram.lab.engine import Batch, ByRun, cross_entropy
from engram.lab.methods.method import FinishedTask, Method, MethodSettings, Setup
from engram.lab.methods.registry import LEARNING_RATES, Entry, register
from engram.lab.settings import setting


@dataclass(frozen=True)
class LwfSettings(MethodSettings):
    """Settings of LwF."""

    strength: float = setting(1.0, "lambda, the weight of keeping to the former answers", least=0)
    temperature: float = setting(2.0, "T, by which logits are divided before they compare", above=0)


class Lwf(Method):
    """Learning without forgetting (Li and Hoiem 2016): no example is remembered.

    A step goes along the gradient of cross_entropy(current) + λ Σ_k H(q_k, p_k): q and p are the
    softmax of logits / T of the network as the last task left it and as it is, for the inputs at
    hand, and H is their cross-entropy. k goes over the earlier tasks, each with its own outputs;
    where all tasks share theirs, there is one term. The former network normalises by its running
    averages. The first task is plain training.
    """

    state: ClassVar[tuple[str, ...]] = (*Method.state, "former", "former_buffers", "finished")
    capturable = True
    settings: LwfSettings

    def __init__(self, setup: Setup, settings: LwfSettings) -> None:
        super().__init__(setup, settings)
        self.former = self.parameters.clone()
        self.former_buffers = self.buffers.clone()
        self.finished = 0  # tasks
        self._strength = setup.number(settings, "strength")
        self._stream = setup.stream
        self._gradient = torch.empty_like(self.parameters)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take a step on the current batch, and on the former answers to it."""
        objective, own = cross_entropy, list[Tensor]()
        if self.finished:
            former, _ = self.network.forward(
                self.former, batch.inputs, self.former_buffers, training=False
            )
            keep = KeepAnswers(
                former, self._masks(batch), self._strength, self.settings.temperature
            )

            def objective(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
                loss, slope = cross_entropy(logits, batch)
                own.append(loss)
                kept, more = keep(logits)
                return loss + kept, slope + more

        loss = self.rows.gradient(batch, self._gradient, objective)
        self.rows.descend(self._gradient, self.learning_rate)
        losses = own[0] if own else loss.unsqueeze(-1)
        return Mix(losses, None, torch.ones_like(losses))

    def end_task(self, task: int, finished: FinishedTask) -> None:  # noqa: ARG002
        """Keep a copy of the network, whose answers the next task keeps to."""
        self.former.copy_(self.parameters)
        self.former_buffers.copy_(self.buffers)
        self.finished = task + 1

    def _masks(self, batch: Batch) -> list[Tensor | None]:
        """Return the outputs of each earlier task, [R, 1, classes]; None: all of them."""
        if batch.outputs is None:
            return [None]
        masks = [self._stream.task_outputs(task) for task in range(self.finished)]
        return [None if mask is None else mask.unsqueeze(1) for mask in masks]


class KeepAnswers:
    """λ Σ_k H(q_k, p_k), and its gradient at the logits: λ / T · (p − q) for each example's share.

    Examples of a batch count alike.
    """

    def __init__(
        self,
        former: Tensor,  # [R, B, classes]
        masks: list[Tensor | None],
        strength: ByRun,
        temperature: float,
    ) -> None:
        self._temperature, self._masks = temperature, masks
        self._strength = strength.unsqueeze(-1) if isinstance(strength, Tensor) else strength
        self._targets = [self._log_chances(former, mask).exp() for mask in masks]

    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss [R, 1] and the gradient at the logits, [R, B, classes]."""
        count = logits.shape[1]
        loss, slope = logits.new_zeros(len(logits), 1, 1), torch.zeros_like(logits)
        for mask, target in zip(self._masks, self._targets, strict=True):
            chances = self._log_chances(logits, mask)
            among = chances if mask is None else chances.masked_fill(~mask, 0)
            loss = loss - (target * among).sum((-2, -1), keepdim=True) / count
            slope += (chances.exp() - target) / (count * self._temperature)
        return (loss * self._strength).squeeze(-1), slope * self._strength

    def _log_chances(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        scaled = logits / self._temperature
        return torch.log_softmax(
            scaled if mask is None else scaled.masked_fill(~mask, -torch.inf), -1
        )


register(
    Entry(
        "lwf",
        Lwf,
        LwfSettings,
        presets={  # Permuted MNIST's is the default: it and Split CIFAR's are tuned, docs/results
            "split-cifar": {"learning_rate": 0.01},
            "split-cub": {"learning_rate": 0.03},
            "split-awa": {"learning_rate": 0.003},
        },
        search={**LEARNING_RATES, "strength": (0.1, 0.3, 1.0, 3.0, 10.0)},
        varies=("learning_rate", "strength"),
    )
)
