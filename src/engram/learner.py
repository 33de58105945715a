"""The body of a lifelong training loop: a rule and a memory around your model and optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from engram.errors import EngramError, shown
from engram.gradients import Mix, backward, backward_each, check_rule
from engram.memory import Memory
from engram.rules import Rule

Batch: TypeAlias = tuple[Tensor, ...] | dict[str, Tensor]
Tags: TypeAlias = Mapping[str, str | int | float | bool | None]
Loss: TypeAlias = Callable[[nn.Module, Any, Tensor | None], Any]
Passes: TypeAlias = list[tuple[Batch, Tensor | None]]


def cross_entropy(model: nn.Module, batch: Batch, tasks: Tensor | None) -> Tensor:  # noqa: ARG001
    """Return the mean cross-entropy of ``model(*inputs)`` for a batch ``(*inputs, classes)``."""
    if not isinstance(batch, tuple) or len(batch) < 2:
        raise EngramError(
            "The default loss takes batches (*inputs, classes); for any other batch, give Learner "
            "a loss of your own."
        )
    *inputs, classes = batch
    outputs = model(*inputs)
    try:
        return functional.cross_entropy(outputs, classes)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise EngramError(
            f"The model's outputs have no cross-entropy with the classes {shown(classes)}: "
            f"{str(error).rstrip('. ')}."
        ) from error


class Learner:
    """Trains a model on what it is given, and keeps what it learnt before.

    A step is: the losses of a fresh sample of the memory, then the loss of the batch at hand, the
    rule's mixture of their gradients, ``optimizer.step()``, and only then is the batch offered to
    the memory. What stays there, and from when it is sampled, is the memory's business; the
    model's mode, its device, the number of passes and any evaluation are yours. Optimisers whose
    step needs a closure are not served; for mixed precision, data parallel training or
    accumulation, use `GradientMixer` in a loop of your own.

    Args:
        model: anything that ``loss`` can be computed from.
        optimizer: over the parameters to train; read anew at every step.
        rule: how the gradients are weighed.
        memory: what is remembered.
        loss: ``loss(model, batch, tasks)`` gives a scalar, or a pair of a scalar and the value
            >= 0 that the rule compares instead. ``tasks`` is an int64 tensor with the task of
            each example, or None where there are no tasks.
        reference_batch: how many examples of the memory each step looks at, at most; of each
            task for a rule that wants its rows by task.

    >>> import torch
    >>> from engram.memory import Memory, Reservoir
    >>> from engram.rules import MEGA2
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> learner = Learner(model, optimizer, MEGA2(), Memory(Reservoir(100)))
    >>> inputs, classes = torch.randn(8, 4), torch.tensor([0, 1] * 4)
    >>> learner.observe(inputs, classes).weights  # nothing is remembered yet
    tensor([1.])
    >>> len(learner.observe(inputs, classes).losses)  # the batch's and the memory's
    2
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        rule: Rule,
        memory: Memory,
        *,
        loss: Loss = cross_entropy,
        reference_batch: int = 256,
    ) -> None:
        if type(reference_batch) is not int or reference_batch < 1:
            raise EngramError(
                f"reference_batch is {shown(reference_batch)}; it must be a whole number of at "
                "least 1."
            )
        check_rule(rule)
        if not hasattr(optimizer, "param_groups"):
            raise EngramError(
                f"optimizer must be one of torch's, not a {type(optimizer).__name__}."
            )
        if loss is cross_entropy and not callable(model):
            raise EngramError(f"model must be one that can be called, not {shown(model)}.")
        if not callable(loss):
            raise EngramError(f"loss must be a function, not {shown(loss)}.")
        if not isinstance(memory, Memory):
            raise EngramError(
                f"memory is a {type(memory).__name__}; give one such as Memory(Reservoir(1000))."
            )
        self.model = model
        self.optimizer = optimizer
        self.rule = rule
        self.memory = memory
        self._loss = loss
        self._reference_batch = reference_batch

    def observe(
        self,
        *batch: Tensor | dict[str, Tensor],
        task: int | None = None,
        ids: Tensor | Iterable[int | str] | None = None,
        labels: Tensor | Sequence[int] | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
    ) -> Mix:
        """Learn from one batch, and offer it to the memory.

        A batch that the memory cannot take is refused before anything is learnt from it.

        Args:
            batch: tensors with one row an example, or one dict of such tensors.
            task: the task that the batch belongs to, where there are tasks.
            ids: the examples' names, by which they can be erased.
            labels: their classes, for a memory that keeps examples by class; by default the last
                tensor of the batch, if it holds one integer an example.
            tags: anything else to find them by; see ``Memory.add`` for this and for ``ids``.
        """
        current = _as_batch(batch)
        if task is not None and not isinstance(task, int):
            raise EngramError(f"task must be one integer, not {shown(task)}.")
        prepared = self.memory.prepare(current, tasks=task, labels=labels, ids=ids, tags=tags)
        if not prepared.size:
            raise EngramError("A batch must hold at least one example; this one holds none.")
        device = prepared.tensors[0].device
        asked = self._loss is not cross_entropy  # which never looks at tasks
        passes = self._references(device, asked)
        tasks = None
        if asked and task is not None:
            tasks = torch.full((prepared.size,), task, device=device)
        # The current batch comes last, as in the paper's experiments: it matters to running means.
        passes.append((current, tasks))
        mix = self._pass_each(passes) if self.rule.needs_gram else self._pass_once(passes)
        self.optimizer.step()
        self.memory.file(prepared)
        return mix

    def end_task(self) -> None:
        """Tell the memory that the task at hand has ended."""
        self.memory.end_task()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the model, the optimiser and the memory."""
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`, bit for bit."""
        parts = self._parts()
        if not isinstance(state, Mapping) or state.keys() != parts.keys():
            held = [*state] if isinstance(state, Mapping) else shown(state)
            raise EngramError(f"A learner's state holds {[*parts]}, and this one {held}.")
        for name, part in parts.items():
            try:
                part.load_state_dict(state[name])
            except EngramError:
                raise
            except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
                told = str(error).rstrip(". ")
                raise EngramError(f"The state is not of this {name}: {told}.") from error

    def _parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "memory": self.memory}

    def _references(self, device: torch.device, with_tasks: bool) -> Passes:
        """Return a batch of the memory for each reference row that the rule wants."""
        wanted = self.rule.reference
        if wanted == "none":
            return []
        found = self.memory.references(
            self._reference_batch, by_task=wanted == "per task", with_tasks=with_tasks
        )
        return [_moved(batch, tasks, device) for batch, tasks in found]

    def _pass_each(self, passes: Passes) -> Mix:
        """Differentiate each loss by itself, one graph at a time."""
        losses = (self._evaluate(batch, tasks) for batch, tasks in passes)
        return backward_each(losses, self._parameters(), self.rule)

    def _pass_once(self, passes: Passes) -> Mix:
        """Differentiate the re-weighted loss."""
        *references, current = [self._evaluate(batch, tasks) for batch, tasks in passes]
        losses, values = zip(current, *references, strict=True)
        return backward(losses, self._parameters(), self.rule, values=values)

    def _parameters(self) -> list[Tensor]:
        return [each for group in self.optimizer.param_groups for each in group["params"]]

    def _evaluate(self, batch: Batch, tasks: Tensor | None) -> tuple[Tensor, Tensor | float]:
        result = self._loss(self.model, batch, tasks)
        if not isinstance(result, tuple):
            return result, result
        if len(result) != 2:
            raise EngramError(f"loss must return one number, or two, not {len(result)}.")
        return result


def _as_batch(given: tuple[Tensor | dict[str, Tensor], ...]) -> Batch:
    """Return one dict or a tuple of tensors, or refuse what is neither."""
    batch: Any = given[0] if len(given) == 1 and isinstance(given[0], dict) else given
    for each in _tensors(batch):
        if not isinstance(each, Tensor) or not each.dim():
            break
    else:
        if batch:
            return batch  # type: ignore[no-any-return]
    raise EngramError(
        "A batch is one or more tensors with one row an example, or one dict of such tensors; "
        f"observe() was given {[type(part).__name__ for part in given] or 'nothing'}."
    )


def _tensors(batch: Batch) -> Iterator[Tensor]:
    return iter(batch.values() if isinstance(batch, dict) else batch)


def _moved(batch: Batch, tasks: Tensor | None, device: torch.device) -> tuple[Batch, Tensor | None]:
    """Return a batch of the memory and its tasks, on the device of the batch at hand."""
    if next(_tensors(batch)).device == device:
        return batch, tasks
    if isinstance(batch, dict):
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
    else:
        batch = tuple(tensor.to(device) for tensor in batch)
    return batch, None if tasks is None else tasks.to(device)
