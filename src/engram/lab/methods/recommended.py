"""What is to be recommended: replay put together of what the other methods have each alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from engram.gradients import Mix
from engram.lab.benchmarks import Examples
from engram.lab.engine import Batch, Term, mean_loss
from engram.lab.methods.der import Distance
from engram.lab.methods.er_ace import among_its_own
from engram.lab.methods.method import Setup
from engram.lab.methods.registry import Entry, register
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings, with_presets
from engram.lab.networks import aligned_empty
from engram.lab.settings import other_default, setting
from engram.rules import MEGA1, MEGA2, Equal, Rule


@dataclass(frozen=True)
class RecommendedSettings(ReplaySettings):
    """Settings of `recommended`; each ingredient has a value that leaves it out."""

    memory: str = other_default(ReplaySettings, "memory", "reservoir")
    rule: Literal["er", "mega-i", "mega-ii"] = setting(
        "er", "how the memory's gradient is weighed: er weighs it as the current batch's"
    )
    epsilon: float = setting(0.1, "of mega-i: current losses up to this count as learned", least=0)
    alpha: float = setting(
        0.3, "weight of the distance to the logits that are remembered (DER++); 0: none", least=0
    )
    masked: bool = setting(
        False, "the current batch is classified among its own classes alone (ER-ACE)"
    )
    updates: int = setting(1, "steps for each batch, each with new draws from the memory", least=1)
    average: float = setting(
        0.99,
        "what a batch leaves of the weights' running average, which is evaluated; 0: no average",
        least=0,
        most=1,
    )


class Recommended(Replay):
    """Replay with DER++'s distance and an average of the weights, and what else is asked for.

    A step goes along

        a g + b r + α ∇ |f(x) − z|² / classes

    where g is the current batch's gradient, r that of a draw from the memory, (a, b) the rule's
    weights (1 and 1 for ER), and x with its remembered logits z another draw. ``updates`` such
    steps are taken for each batch, which is learned in one go and then gone. What is evaluated is

        w̄ ← w̄ + max(1 − average, 1 / n) (w − w̄)      after batch n

    the mean of all weights so far, and from batch 1 / (1 − average) on one that forgets. Nothing
    that is trained depends on it.
    """

    state: ClassVar[tuple[str, ...]] = (
        *Replay.state,
        "averaged",
        "averaged_buffers",
        "batches",
    )
    settings: RecommendedSettings

    def __init__(self, setup: Setup, settings: RecommendedSettings) -> None:
        super().__init__(setup, settings, setup.rule(settings, _rule))
        self._remembers = settings.alpha > 0
        self._per_update = 2 if self._remembers else 1
        self.draws = settings.updates * self._per_update
        self._averages = any(one.average > 0 for one in setup.each or (settings,))
        decay = setup.number(settings, "average")
        self._least_share = 1 - decay * torch.ones_like(self.parameters[:, :1])
        kept = slice(None) if self._averages else slice(0)
        start = self.parameters[:, kept]
        self.averaged = aligned_empty(start, *start.shape).copy_(start)
        self.averaged_buffers = self.buffers[:, kept].clone()
        self.batches = torch.zeros_like(self._least_share)  # in the average, [R, 1]

    def stage_examples(self, examples: Examples) -> Examples:
        """Put the examples into the memory's table, with room for the logits of each."""
        if not self._remembers:
            return super().stage_examples(examples)
        room = self.parameters.new_zeros(*examples.labels.shape, self.stream.classes)
        return self.bank.stage_examples(examples, logits=room)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take the steps, and remember the batch's logits as they were before the first."""
        answered = list[Tensor]()

        def current(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
            if self._remembers and not answered:
                answered.append(logits.clone())
            return mean_loss(logits, batch)

        drawn = self.drawn(step, *(["logits"] if self._remembers else []))
        if self.settings.masked and drawn:
            batch = among_its_own(batch, self.stream.classes)
        for update in range(self.settings.updates):
            mine = drawn[update * self._per_update :][: self._per_update]
            terms = [
                Term(part, Distance(*logits), self.settings.alpha) for part, logits in mine[:-1]
            ]
            reference = mine[-1][0] if mine else None
            mix = self.rows.step(
                self.rule,
                self.learning_rate,
                batch,
                reference,
                objective=current,
                terms=terms,
            )
        if answered:
            self.bank.write(step, logits=answered[0])
        if self._averages:
            self.batches.add_(1)
            share = torch.maximum(self._least_share, 1 / self.batches)
            self.averaged.lerp_(self.parameters, share)
            self.network.average_buffers(self.averaged_buffers, self.buffers, share)
        return mix

    @property
    def evaluated(self) -> tuple[Tensor, Tensor]:
        """The averages of parameters and buffers, where there are any."""
        return (self.averaged, self.averaged_buffers) if self._averages else super().evaluated


def _rule(settings: RecommendedSettings) -> Rule:
    if settings.rule == "er":
        return Equal()
    return MEGA1(settings.epsilon) if settings.rule == "mega-i" else MEGA2()


register(
    Entry(
        "recommended",
        Recommended,
        RecommendedSettings,
        presets=with_presets({name: {"memory": "reservoir"} for name in PRESETS}),
        search={
            "updates": (1, 2),
            "average": (0.9, 0.99),
            "alpha": (0.1, 0.3, 1.0),
            "rule": ("er", "mega-ii"),
        },
        varies=("learning_rate", "epsilon", "average"),
        one_pass=True,
    )
)
