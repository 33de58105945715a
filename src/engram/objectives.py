"""What a learner minimises, where that is more than one loss: DER, ER-ACE and LwF.

A loss of your own is a function of a model, a batch and its tasks. An `Objective` is for what needs
more: another loss for what is remembered than for the batch at hand, columns that are remembered
beside an example, or a look at the model when a task ends. Give either to ``Learner(loss=…)``.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.errors import EngramError, shown

__all__ = ["DER", "ERACE", "Answer", "LwF", "Objective"]

Batch: TypeAlias = tuple[Tensor, ...] | dict[str, Tensor]


class Answer(NamedTuple):
    """What an objective says of a batch."""

    loss: Tensor
    """What is differentiated: a mean over the examples."""
    value: Tensor | None = None
    """What the rule compares; None for the loss itself."""
    columns: Mapping[str, Tensor] = {}
    """What is to be remembered of the batch at hand, one row an example, by `Objective.columns`."""


class Objective(ABC):
    """A loss of the batch at hand, and one of what is remembered."""

    columns: ClassVar[tuple[str, ...]] = ()
    """The names of what the memory is to keep beside each example."""

    draws: int = 1
    """How many samples of the memory a step looks at, independent of one another."""

    @abstractmethod
    def current(
        self, model: nn.Module, batch: Batch, tasks: Tensor | None, *, alone: bool
    ) -> Answer:
        """Return the loss of the batch at hand, or of a part of it, and its `columns`.

        ``alone`` is whether the step looks at nothing that is remembered.
        """

    def remembered(
        self,
        model: nn.Module,
        batch: Batch,
        tasks: Tensor | None,
        columns: Mapping[str, Tensor],  # noqa: ARG002
        draw: int,  # noqa: ARG002
    ) -> Answer:
        """Return the loss of a batch of the memory, with what was kept beside it.

        Of several ``draws`` it is the one of that number, from 0; their losses, and their values,
        add up to those of the memory.
        """
        return self.current(model, batch, tasks, alone=True)

    def end_task(self, model: nn.Module) -> None:  # noqa: B027 (may do nothing)
        """Look at the model at the end of a task."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`, or refuse it and stay as it is."""
        if state:
            raise EngramError(f"{type(self).__name__} has no state, and this one holds {[*state]}.")


class DER(Objective):
    """Dark experience replay: what is remembered of an example is what the model answered (z).

    The memory's loss is α |f(x) − z|² / outputs and, with β (DER++), β times the cross-entropy with
    the labels of a second draw from the memory. Use it with the rule ``Equal()``.

    Args:
        alpha: the weight of the distance.
        beta: the weight of the labels' cross-entropy; 0 for DER.

    >>> from engram import Learner
    >>> from engram.memory import Memory, Reservoir
    >>> from engram.rules import Equal
    >>> model = nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> learner = Learner(model, optimizer, Equal(), Memory(Reservoir(100)), loss=DER(0.3, 0.5))
    >>> batch = torch.randn(8, 4), torch.tensor([0, 1] * 4)
    >>> for _ in range(2):
    ...     mix = learner.observe(*batch)
    >>> [column.shape for column in learner.memory.sample(5).batch]  # the logits are the last
    [torch.Size([5, 4]), torch.Size([5]), torch.Size([5, 2])]
    """

    columns: ClassVar[tuple[str, ...]] = ("logits",)

    def __init__(self, alpha: float = 0.3, beta: float = 0.5) -> None:
        self.alpha = _weight("alpha", alpha)
        self.beta = _weight("beta", beta)
        self.draws = 2 if self.beta else 1

    def current(
        self,
        model: nn.Module,
        batch: Batch,
        tasks: Tensor | None,  # noqa: ARG002
        *,
        alone: bool,  # noqa: ARG002
    ) -> Answer:
        """Return the cross-entropy, and the logits to be remembered."""
        logits, labels = _answered(self, model, batch)
        return Answer(functional.cross_entropy(logits, labels), None, {"logits": logits.detach()})

    def remembered(
        self,
        model: nn.Module,
        batch: Batch,
        tasks: Tensor | None,  # noqa: ARG002
        columns: Mapping[str, Tensor],
        draw: int,
    ) -> Answer:
        """Return the distance to the logits of then or, of the second draw, the cross-entropy."""
        logits, labels = _answered(self, model, batch)
        if draw == 1:
            entropy = functional.cross_entropy(logits, labels)
            return Answer(self.beta * entropy, entropy.detach())
        then = columns["logits"]
        if then.shape[1:] != logits.shape[1:]:
            width = then.shape[-1]  # of a head that has grown since: its first outputs
            if then.shape[1:-1] != logits.shape[1:-1] or width > logits.shape[-1]:
                raise EngramError(
                    f"The memory holds logits of shape {list(then.shape[1:])}, and the model "
                    f"answers {list(logits.shape[1:])}."
                )
            distance = functional.mse_loss(logits[..., :width], then)
        else:
            distance = functional.mse_loss(logits, then)
        if self.beta:  # the second draw is what a rule compares
            return Answer(self.alpha * distance, torch.zeros_like(distance).detach())
        entropy = functional.cross_entropy(logits.detach(), labels)
        return Answer(self.alpha * distance, entropy)


class ERACE(Objective):
    """ER-ACE: the batch at hand is classified among its own classes, the memory's among all.

    So classes that have just come do not push down those that are remembered. While nothing is
    remembered yet, the loss is the plain cross-entropy. Use it with the rule ``Equal()``.
    """

    def current(
        self,
        model: nn.Module,
        batch: Batch,
        tasks: Tensor | None,  # noqa: ARG002
        *,
        alone: bool,
    ) -> Answer:
        """Return the cross-entropy, among the batch's own classes unless it is alone."""
        logits, labels = _answered(self, model, batch)
        if not alone:
            every = torch.arange(logits.shape[1], device=labels.device)
            present = (labels.reshape(-1, 1) == every).any(0)
            shape = [1, -1, *[1] * (logits.dim() - 2)]
            logits = logits.masked_fill(~present.view(shape), -math.inf)
        return Answer(functional.cross_entropy(logits, labels))


class LwF(Objective):
    """Learning without forgetting: the model keeps to what it answered before the task.

    The loss is the cross-entropy plus λ H(q, p): q and p are the softmax of the outputs / T of the
    model as the last task left it, of which a copy is kept, and as it is. It needs no memory; the
    copy is in its evaluation mode. Where the head has grown since, its first outputs are compared.

    Args:
        strength: λ.
        temperature: T.
    """

    def __init__(self, strength: float = 1.0, temperature: float = 2.0) -> None:
        self.strength = _weight("strength", strength)
        self.temperature = _weight("temperature", temperature)
        if not self.temperature:
            raise EngramError("temperature must be above 0, not 0.")
        self._former: nn.Module | None = None
        self._saved: Mapping[str, Any] | None = None  # of a former model that is not built yet

    def current(
        self,
        model: nn.Module,
        batch: Batch,
        tasks: Tensor | None,  # noqa: ARG002
        *,
        alone: bool,  # noqa: ARG002
    ) -> Answer:
        """Return the loss; the rule compares the cross-entropy alone."""
        logits, labels = _answered(self, model, batch)
        entropy = functional.cross_entropy(logits, labels)
        if self._saved is not None:
            self._build(model)
        if self._former is None or not self.strength:
            return Answer(entropy)
        with torch.no_grad():
            then, _ = _answered(self, self._former, batch)
        now = logits[:, : then.shape[1]]
        kept = -(
            (then / self.temperature).softmax(1) * (now / self.temperature).log_softmax(1)
        ).sum(1)
        return Answer(entropy + self.strength * kept.mean(), entropy.detach())

    def end_task(self, model: nn.Module) -> None:
        """Keep a copy of the model, whose answers the next task keeps to."""
        self._former = _frozen(model)
        self._saved = None

    def _build(self, model: nn.Module) -> None:
        """Make the former model of a state that was loaded: a copy of this one with its weights."""
        assert self._saved is not None
        former = _frozen(model)
        try:
            former.load_state_dict(self._saved)
        except (KeyError, RuntimeError) as error:
            reason = str(error).rstrip(". ")
            raise EngramError(
                f"The state's former model is none such as this: {reason}."
            ) from error
        self._former, self._saved = former, None

    def state_dict(self) -> dict[str, Any]:
        """Return the weights and buffers of the former model; nothing before a task has ended."""
        if self._former is None:
            return {} if self._saved is None else {"former": self._saved}
        return {"former": {name: each.clone() for name, each in self._former.state_dict().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; the former model is built by the next step, of the model."""
        if state.keys() - {"former"} or not isinstance(state.get("former", {}), Mapping):
            raise EngramError("The state of LwF holds a former model, and this one does not.")
        self._former, self._saved = None, copy.deepcopy(state.get("former"))


def _frozen(model: nn.Module) -> nn.Module:
    former = copy.deepcopy(getattr(model, "module", model))  # of a wrapper, the model inside
    return former.eval().requires_grad_(False)


def _answered(objective: Objective, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return a batch's logits and labels."""
    if not isinstance(batch, Sequence) or len(batch) < 2:
        raise EngramError(
            f"{type(objective).__name__} takes batches (*inputs, classes); for any other, write an "
            "Objective of your own."
        )
    *inputs, labels = batch
    logits = model(*inputs)
    if not isinstance(logits, Tensor) or logits.dim() < 2:
        raise EngramError(
            f"{type(objective).__name__} needs a model that gives logits, one row an example, not "
            f"{shown(type(logits).__name__)}."
        )
    return logits, labels


def _weight(name: str, value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise EngramError(f"{name} must be a number of at least 0, not {shown(value)}.")
    return float(value)  # type: ignore[arg-type]
