"""DER and DER++: replay of what the network answered when it saw an example, and of its label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from engram.gradients import Mix
from engram.lab.benchmarks import Examples
from engram.lab.engine import Batch, cross_entropy, gram
from engram.lab.methods.method import Setup
from engram.lab.methods.registry import Entry, register
from engram.lab.methods.replay import Replay, ReplaySettings, with_presets
from engram.lab.networks import aligned_empty
from engram.lab.settings import setting
from engram.rules import Equal


@dataclass(frozen=True)
class DerSettings(ReplaySettings):
    """Settings of DER, which remembers the current task too, as its authors' reservoir does."""

    memory: Literal["ring", "sample", "reservoir", "fifo"] = setting(
        "reservoir",
        "reservoir, fifo: the current task included, as in the authors' runs; "
        "ring, sample: of finished tasks alone",
    )
    alpha: float = setting(0.3, "weight of the distance to the logits that are remembered", least=0)


@dataclass(frozen=True)
class DerPlusSettings(DerSettings):
    """Settings of DER++."""

    beta: float = setting(0.5, "weight of the cross-entropy with the labels remembered", least=0)


class Der(Replay):
    """Dark experience replay (Buzzega et al. 2020).

    An example is remembered with z, the logits that the network gave when it learned it. A step
    goes along the gradient of

        cross_entropy(current) + α |f(x) − z|² / classes + β cross_entropy(f(x'), y')

    where x and x' are two draws from the memory, independent of each other; DER is β = 0, with one
    draw. Where an example is classified among its own task's outputs, distances are of those.
    """

    settings: DerSettings

    def __init__(self, setup: Setup, settings: DerSettings) -> None:
        super().__init__(setup, settings, Equal())
        self.capturable = True
        self._alpha = setup.number(settings, "alpha")
        self._beta = setup.number(settings, "beta") if hasattr(settings, "beta") else None
        self.draws = 1 if self._beta is None else 2
        self._resumed: Tensor | None = None  # of a task that is gone on with
        self._rows = aligned_empty(
            self.parameters, len(self.parameters), 1 + self.draws, self.network.size
        )

    def stage_examples(self, examples: Examples) -> Examples:
        """Put the examples into the memory's table, with room for the logits of each."""
        logits, self._resumed = self._resumed, None
        if logits is None:
            logits = self.parameters.new_zeros(*examples.labels.shape, self.stream.classes)
        return self.bank.stage_examples(examples, logits=logits)

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on, the current task's logits so far included."""
        return super().state_dict() | {"logits": self.bank.staged("logits")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        logits = state["logits"]
        self._resumed = None if logits is None else logits.to(self.parameters)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take the step, and remember the batch's logits as they were before it."""
        answered: list[Tensor] = []

        def current(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
            answered.append(logits.clone())
            return cross_entropy(logits, batch)

        losses, weights = [], [torch.ones_like(self.parameters[:, :1])]
        # The memory first, as in every method: it matters to running averages.
        for place, (part, (logits,)) in enumerate(self.drawn(step, "logits"), 1):
            objective = Distance(logits) if place == 1 else cross_entropy
            losses.append(self.rows.gradient(part, self._rows[:, place], objective))
            weights.append(self._weight(place))
        losses.insert(0, self.rows.gradient(batch, self._rows[:, 0], current))
        self.bank.write(step, logits=answered[0])
        rows, shares = self._rows[:, : len(losses)], torch.cat(weights, 1)
        update = torch.bmm(shares.unsqueeze(1), rows).squeeze(1)
        self.rows.descend(update, self.learning_rate)
        products = gram(rows) if self.rows.compare and len(losses) > 1 else None
        return Mix(torch.stack(losses, 1), products, shares)

    def _weight(self, place: int) -> Tensor:
        """Return α or β for each run, [R, 1]."""
        number = self._alpha if place == 1 else self._beta
        assert number is not None
        return torch.ones_like(self.parameters[:, :1]) * number


class Distance:
    """The mean squared distance of logits to what they were, as an objective."""

    def __init__(self, logits: Tensor) -> None:
        self._target = logits

    def __call__(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss [R, 1], and its gradient at the logits [R, B, classes].

        An example whose share of the mean is s has the loss s |f − z|² / classes.
        """
        distance = logits - self._target
        count: Tensor | float = float(logits.shape[-1])
        if batch.outputs is not None:
            distance = distance * batch.outputs
            count = batch.outputs.sum(-1, keepdim=True).to(distance.dtype)
        share = 1 / logits.shape[1] if batch.weights is None else batch.weights.unsqueeze(-1)
        slope = distance * (share / count)
        return (slope * distance).sum((-2, -1)).unsqueeze(-1), 2 * slope


_SEARCH = {"alpha": (0.1, 0.3, 1.0)}
# Tuned: docs/results/newer-methods.md. The defaults are the authors' for CIFAR-100.
register(
    Entry(
        "der",
        Der,
        DerSettings,
        with_presets({"permuted-mnist": {"alpha": 1.0}, "split-cifar": {"alpha": 0.1}}),
        _SEARCH,
        varies=("learning_rate", "alpha"),
        one_pass=True,
    )
)
register(
    Entry(
        "derpp",
        Der,
        DerPlusSettings,
        with_presets(
            {
                "permuted-mnist": {"alpha": 0.1, "beta": 1.0},
                "split-cifar": {"alpha": 0.3, "beta": 0.3},
            }
        ),
        {**_SEARCH, "beta": (0.3, 0.5, 1.0)},
        varies=("learning_rate", "alpha", "beta"),
        one_pass=True,
    )
)
