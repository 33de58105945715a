"""iCaRL: answers by the nearest mean of exemplars, and holds old outputs in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from engram.engine import Batch
from engram.errors import EngramError
from engram.gradients import Mix
from engram.methods._entry import Entry, register
from engram.methods._exemplars import choose, distillation, lists_with
from engram.methods._method import FinishedTask
from engram.methods._nearest_mean import NearestMean, NearestMeanSettings
from engram.methods._setup import Setup
from engram.settings import setting

_PER_CLASS = 25  # of each task, the budget of the methods with a memory by class


@dataclass(frozen=True)
class IcarlSettings(NearestMeanSettings):
    """Settings of iCaRL."""

    distillation: float = setting(1.0, "weight of what holds the old tasks' outputs", least=0)
    memory_size: int = setting(
        0,
        "exemplars in all (1300 in the comparison, on CIFAR); "
        f"0: {_PER_CLASS} for each class and task, as many as other memories hold",
        least=0,
    )


class Icarl(NearestMean):
    """Herds exemplars of every class and task, and answers by the nearest mean of their outputs.

    A step goes down cross-entropy(batch) + λ Σ over old tasks of the mean of KL(q ‖ p), over one
    exemplar of each of its classes: p is the network's softmax, q what it was when the last task
    ended. Of every (task, class) the first budget / (number of those seen) exemplars stay.
    """

    state: ClassVar[tuple[str, ...]] = (*NearestMean.state, "planned")
    capturable = True
    settings: IcarlSettings

    def __init__(self, setup: Setup, settings: IcarlSettings) -> None:
        super().__init__(setup, settings)
        self.seeds = setup.seeds
        whole = _PER_CLASS * self.stream.classes_per_task * self.stream.tasks
        self.budget = settings.memory_size or whole
        self._position: Tensor | None = None
        self.planned = (0, 0)  # the task in hand, and its steps
        self._update, self._pull = (torch.empty_like(self.parameters) for _ in range(2))
        self._runs = torch.arange(len(self.seeds), device=self.parameters.device).unsqueeze(-1)

    def begin_task(self, task: int, labels: Tensor) -> None:
        """Draw which exemplars the task's steps distil."""
        # The first task is taken for what the others will be like: better to refuse now than late.
        alike = self.stream.tasks if task == 0 else 1
        needed = int(lists_with(self.exemplars, labels, alike).max())
        if needed > self.budget:
            raise EngramError(
                f"memory_size must be at least {needed}, an exemplar for each class of each task, "
                f"not {self.budget}."
            )
        self._plan(task, -(-labels.shape[1] // self.settings.batch_size))

    def _plan(self, task: int, steps: int) -> None:
        self.planned = (task, steps)
        if self.exemplars is not None:
            self._places, weights = self.exemplars.one_of_each(self.seeds, task, steps)
            self._weights = weights.to(self.parameters.dtype)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take a step on the batch and the exemplars of old tasks."""
        losses = [self.rows.gradient(batch, self._update)]
        if self.exemplars is not None:
            index = (self._runs, self._drawn(step))
            old = self.stream.batch(self.exemplars.inputs[index], self.exemplars.labels[index])
            old = old._replace(weights=self._weights)
            objective = partial(distillation, targets=self.exemplars.outputs[index])
            losses.append(self.rows.gradient(old, self._pull, objective))
            self._update.add_(self._pull, alpha=self.settings.distillation)
        self.rows.descend(self._update, self.learning_rate)
        self._means = None
        stacked = torch.stack(losses, -1)
        weights = torch.ones_like(stacked)
        weights[:, 1:] = self.settings.distillation
        return Mix(stacked, None, weights)

    def _drawn(self, step: int) -> Tensor:
        """Return the places of the exemplars that a step distils, [R, G]."""
        if self._position is None:
            return self._places[:, step]
        return self._places.index_select(1, self._position).squeeze(1)

    def locate(self, position: Tensor | None) -> None:
        """Take the number of the step in hand from the device."""
        self._position = position

    def end_task(self, task: int, finished: FinishedTask) -> None:
        """Choose the task's exemplars, cut back the others, and note the outputs of all."""
        examples = finished.examples()
        quotas = self.budget // lists_with(self.exemplars, examples.labels)
        outputs = self._outputs(examples.inputs)
        chosen = choose(task, examples, outputs, self.stream.classes, int(quotas.max()))
        every = chosen if self.exemplars is None else self.exemplars.joined(chosen)
        kept = every.first(quotas)
        self.exemplars = kept._replace(outputs=self._outputs(kept.inputs))
        self.ended, self._means = task + 1, None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self._plan(*self.planned)

    def facts(self) -> dict[str, int]:
        """Return what the method holds, for one run."""
        held = sum(part.nbytes for part in self.exemplars or ()) // len(self.seeds)
        return super().facts() | {"memory_bytes": held}


register(
    Entry(
        "icarl",
        Icarl,
        IcarlSettings,
        presets={
            "permuted-mnist": {"learning_rate": 0.1},  # tuned: docs/results
            "split-cifar": {"learning_rate": 0.1, "memory_size": 1300},
        },
        search={"learning_rate": (0.3, 0.1, 0.03, 0.01)},
        varies=("learning_rate",),
    )
)
