"""How much each weight matters: what the four penalties estimate while a model learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

Weights: TypeAlias = list[Tensor] | tuple[Tensor, ...]
"""A tensor for each parameter: of one model, or [R, ...] of R runs that learn side by side."""


class TaskPass(NamedTuple):
    """What an estimate wants to see of a task once more when the task ends."""

    of: Literal["loss", "squared outputs"]
    """Whose gradients: the mean loss of a batch, or the sum of its squared outputs."""
    single: bool
    """Whether they are those of single examples, or of the batches as they were learnt."""


class Importance(ABC):
    """An estimate Ω of how much each weight matters, gathered step by step and task by task.

    Everything is by weight, but for the scale of some estimates, which is each run's own. What is
    gathered is changed in place, so that a step can be captured as a CUDA graph. The order of calls
    is: ``before_step`` and ``extend_path`` around each step; at the end of a task, if it has a
    ``task_pass``, ``begin_pass`` and ``measure`` for each gradient, then ``end_task`` and
    ``next_anchor``.
    """

    state: ClassVar[tuple[str, ...]] = ()
    """The attributes that are gathered: each a list with a tensor for each parameter."""

    follows_path: ClassVar[bool] = False
    """Whether it wants to know of every step how far the loss fell along each weight."""

    task_pass: TaskPass | None = None

    stacked: bool = False
    """Whether the weights are those of R runs, [R, ...]."""

    def __init__(self, weights: Weights) -> None:
        for name in self.state:
            setattr(self, name, [self.initial(name, each) for each in weights])

    def initial(self, name: str, weight: Tensor) -> Tensor:  # noqa: ARG002
        """Return what an attribute of the state is for a parameter that has learnt nothing."""
        return torch.zeros_like(weight)

    def refreshes(self, step: int) -> bool:  # noqa: ARG002
        """Whether step number ``step`` of a task, from 0, does more than others do."""
        return False

    def before_step(self, step: int, weights: Weights, gradients: Weights) -> None:  # noqa: B027 (may do nothing)
        """Use the loss's own gradients, without the penalty, before the weights move."""

    def extend_path(self, gradients: Weights, steps: Weights, scale: float) -> None:  # noqa: B027 (may do nothing)
        """Use the step that was taken: the loss fell by ``scale`` · gradient · step, by weight."""

    def begin_pass(self, weights: Weights) -> None:  # noqa: B027 (may do nothing)
        """Get ready for the gradients of a `TaskPass`."""

    def measure(self, gradients: Weights) -> None:  # noqa: B027 (may do nothing)
        """Take gradients of a `TaskPass`, which are free to be overwritten."""

    def measured(self) -> list[Tensor]:
        """Return what `measure` has summed, which ranks that saw a part of the task add up."""
        return []

    @abstractmethod
    def end_task(
        self, weights: Weights, anchors: Weights, *, examples: float, first: bool
    ) -> list[Tensor]:
        """Return Ω at the end of a task, of ``examples`` where it went through a `TaskPass`.

        ``anchors`` are still the weights that have been held, ``first`` whether none were.
        """

    def next_anchor(self, weights: Weights, anchors: Weights) -> Weights:  # noqa: ARG002
        """Return the weights w* to hold from here on; called after `end_task`."""
        return weights


def scaled(importance: Weights, *, stacked: bool) -> list[Tensor]:
    """Scale an importance to [0, 1], by its smallest and largest over all parameters of a run.

    >>> first, second = torch.tensor([[2.0, 4.0], [7.0, 7.0]]), torch.tensor([[3.0], [7.0]])
    >>> [each.tolist() for each in scaled([first, second], stacked=True)]
    [[[0.0, 1.0], [0.0, 0.0]], [[0.5], [0.0]]]
    """
    if not stacked:
        return [each[0] for each in scaled([each[None] for each in importance], stacked=True)]
    bounds = [each.reshape(len(each), -1).aminmax(dim=-1) for each in importance if each.numel()]
    if not bounds:
        return [each.clone() for each in importance]
    least, most = bounds[0]
    for low, high in bounds[1:]:
        least, most = torch.minimum(least, low.to(least)), torch.maximum(most, high.to(most))
    span = most - least + 1e-32
    return [
        (each - _by_run(least, each)).div_(_by_run(span, each)) if each.numel() else each.clone()
        for each in importance
    ]


def _by_run(numbers: Tensor, like: Tensor) -> Tensor:
    """Return a number for each run [R] as something to subtract from [R, ...]."""
    return numbers.to(like).view(-1, *[1] * (like.dim() - 1))


def on_all(
    operation: str, tensors: Weights, *others: Weights | float, **numbers: float
) -> list[Tensor]:
    """Do one of torch's operations, such as "addcmul_", to each tensor and what is in its place.

    Several tensors take one launch of a GPU. A single one, of R runs, has the plain operation: the
    other would cut it in pieces of 65,536 numbers, too few to keep a GPU at work.
    """
    if len(tensors) != 1:
        done = getattr(torch, f"_foreach_{operation}")(tensors, *others, **numbers)
        return list(tensors if done is None else done)
    own = [each[0] if isinstance(each, list | tuple) else each for each in others]
    return [getattr(tensors[0], operation)(*own, **numbers)]


def clear(*states: Weights) -> None:
    """Set what was gathered back to 0."""
    for state in states:
        if state:
            on_all("zero_", state)
