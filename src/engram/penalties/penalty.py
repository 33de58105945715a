"""A penalty in anyone's training loop: what it does around a step, and at the end of a task."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from engram.errors import EngramError, shown
from engram.gradients import (
    GroupChoice,
    Ranks,
    begin_check,
    check_group,
    is_finite,
    optimized,
    raise_on_all,
    ranks_of,
    refuse_sharded,
)
from engram.penalties.importance import Importance, TaskPass, Weights
from engram.rules import Current

if TYPE_CHECKING:
    from torch.amp import GradScaler

_Choice = TypeVar("_Choice")
Loss: TypeAlias = Callable[[nn.Module, Any, Tensor | None], Any]
Outputs: TypeAlias = Callable[[nn.Module, Any], Tensor]
_TaskBatch: TypeAlias = Any  # a tuple or a dict of tensors, which is checked
_FACTS = ("anchor", "penalty_weight")  # of every penalty, a tensor for each parameter
_WIDE = (torch.float32, torch.float64)
TOO_LARGE = "is not finite: the weights are too far from where it holds them, for its strength"
"""What is wrong with a penalty's gradient where the loss's is finite."""


class Penalty(ABC):
    """Trains on loss + λ Σ Ω (w − w*)², w* the weights at the end of the task before.

    The gradient of the penalty, 2 λ Ω (w − w*), is added to the loss's: ``.grad`` is a new tensor
    then, their sum. There is none in the first task. What Ω is, and how it is estimated, is each
    penalty's own: an `Importance`. The cost of a step does not depend on the number of tasks.
    Everything is kept parameter by parameter, in float32 at least: no flat copy of the model is
    ever made.

    In a loop of your own, `step` stands for ``optimizer.step()``, and `end_task` is called between
    tasks; ``Learner(…, penalty=EWC(10.0))`` does both. The parameters are those of the optimiser.
    Ones that come later, such as an adapter's, are held from the next task on; where a parameter is
    exchanged for a larger one, as by a head that grows, call `replace`.

    In data parallel training the gradients must be the same on all ranks, as they are behind
    DistributedDataParallel and with our own rules; then so is the penalty.
    """

    def __init__(self, strength: float) -> None:
        self.strength = number("strength", strength, least=0)  # λ
        self._parameters: list[Tensor] = []
        self._importance: Importance | None = None
        self._anchors: list[Tensor] = []  # w*
        self._penalty_weights: list[Tensor] = []  # 2 λ Ω
        self._penalised = False  # whether a task has ended
        self._steps = 0  # in the task at hand
        # Between the two halves of a step: gradients without the penalty, and weights before it.
        self._before: tuple[list[Tensor], list[Tensor]] | None = None

    @abstractmethod
    def importance_for(self, weights: Weights) -> Importance:
        """Return an estimate that has seen nothing, for these weights."""

    def attach(self, optimizer: Optimizer | Iterable[Tensor]) -> None:
        """Hold these parameters, an optimiser's or those given; the first step does so by itself.

        New ones are taken in; that one is gone which was held before is refused.
        """
        parameters = _parameters_of(optimizer)
        if not parameters and not self._parameters:
            raise EngramError(
                "A penalty holds parameters, and none are given: an iterator, such as "
                "model.parameters(), gives them once."
            )
        if [*map(id, parameters)] == [*map(id, self._parameters)]:
            return
        known = {id(each) for each in self._parameters}
        if len(parameters) == len(known) and all(id(each) in known for each in parameters):
            return
        if gone := known - {id(each) for each in parameters}:
            shapes = [list(each.shape) for each in self._parameters if id(each) in gone]
            raise EngramError(
                f"Parameters that the penalty holds, of the shapes {shown(shapes)}, are not among "
                "the optimizer's any more; where one was exchanged for another, call "
                "penalty.replace(old, new) first."
            )
        new = [each for each in parameters if id(each) not in known]
        _check_parameters(new)
        self._take_in(new)

    def step(
        self,
        optimizer: Optimizer,
        *,
        scaler: GradScaler | None = None,
        check_finite: bool = True,
    ) -> None:
        """Take the optimiser's step on the loss and the penalty, by the gradients in ``.grad``.

        With a GradScaler this stands for ``scaler.step(optimizer)``; a step that it skips is none
        for the penalty either. See `before_step` for ``check_finite``.
        """
        if scaler is None or not scaler.is_enabled():
            self.before_step(optimizer, check_finite=check_finite)
            optimizer.step()
            self.after_step()
            return
        scaler.unscale_(optimizer)
        if is_finite([each.grad for each in optimized(optimizer)]):
            self.before_step(optimizer, check_finite=False)
            scaler.step(optimizer)
            self.after_step()
        else:
            scaler.step(optimizer)  # which skips it

    @torch.no_grad()
    def before_step(
        self,
        optimizer: Optimizer | Iterable[Tensor],
        *,
        valid: Tensor | None = None,
        check_finite: bool = True,
    ) -> Tensor | None:
        """Use the loss's gradients, and add the penalty's to ``.grad``; `after_step` must follow.

        Where ``check_finite`` is left on, a step is refused whose gradient, the penalty's with it,
        is not finite, and nothing is changed; on a GPU the host waits for one number of each step
        then. With ``valid``, a truth on the device, nothing is waited for: a step that is not valid
        counts as one with gradients of 0, and so does one whose gradient is not finite with the
        penalty's. That is returned, a number on the device that is not 0 if so.
        """
        self.attach(optimizer)
        importance, weights, self._before = self._estimate(), self._weights(), None
        own = gradients = self._own_gradients()
        trained = [i for i, each in enumerate(self._parameters) if each.requires_grad]
        trained = trained if self._penalised else []
        totals = self._with_penalty(trained, weights, own)
        found = trouble = None
        if valid is not None:
            if check_finite and totals:
                trouble = _trouble(totals)
                valid = valid.logical_and(trouble.to(valid.device) == 0)
            gradients = _zero_unless(valid, own)
        elif check_finite:
            rest = set(range(len(own))).difference(trained) if len(trained) < len(own) else ()
            found = _begin_check([*totals, *(own[i] for i in rest)])
        before = None
        if importance.follows_path:
            # Copies: the weights are about to change, and so may be what stays in .grad.
            kept = _copies(gradients) if gradients is own and len(trained) < len(own) else gradients
            before = kept, _copies(weights)
        if found is not None and not found():
            self._refuse(own)
        importance.before_step(self._steps, weights, gradients)
        for i, total in zip(trained, totals, strict=True):
            self._parameters[i].grad = total
        self._before = before
        return trouble

    def _with_penalty(
        self, trained: Sequence[int], weights: list[Tensor], own: list[Tensor]
    ) -> list[Tensor]:
        """Return the gradients of loss and penalty, g + 2 λ Ω (w − w*), of some parameters."""
        if not trained:
            return []
        lists = [weights, self._anchors, self._penalty_weights, own]
        if len(trained) < len(own):
            lists = [[each[i] for i in trained] for each in lists]
        now, anchors, penalty_weights, gradients = lists
        totals = [*torch._foreach_sub(now, anchors)]
        if all(each.is_cpu for each in totals):
            for total, penalty_weight, gradient in zip(
                totals, penalty_weights, gradients, strict=True
            ):
                torch.addcmul(gradient, penalty_weight, total, out=total)
        else:  # two launches, whatever the model
            torch._foreach_mul_(totals, penalty_weights)
            torch._foreach_add_(totals, gradients)
        for place, i in enumerate(trained):  # in half precision it may be too large a number
            parameter = self._parameters[i]
            dtype = parameter.dtype if parameter.grad is None else parameter.grad.dtype
            if totals[place].dtype is not dtype:
                totals[place] = totals[place].to(dtype)
        return totals

    def _refuse(self, own: Sequence[Tensor]) -> None:
        """Raise for a step that is not finite, and drop ``.grad`` if that of the loss is."""
        if not is_finite(own):
            raise EngramError(
                "A gradient is not finite; the step is refused, and the penalty is as it was."
            )
        for each in self._parameters:
            if each.requires_grad:
                each.grad = None
        raise EngramError(f"The gradient of {self} {TOO_LARGE}; the step is refused.")

    def after_step(self) -> None:
        """Use how far the weights have moved."""
        self._steps += 1
        if self._before is None:
            return
        (gradients, weights), self._before = self._before, None
        with torch.no_grad():
            torch._foreach_sub_(weights, self._weights())  # back from there, to save a copy
            self._estimate().extend_path(gradients, weights, 1.0)

    def end_task(
        self,
        model: nn.Module | None = None,
        batches: Iterable[_TaskBatch] | None = None,
        *,
        loss: Loss | None = None,
        outputs: Outputs | None = None,
        process_group: GroupChoice = None,
    ) -> None:
        """Estimate the importance of every weight, and hold it from here on.

        MAS, and EWC by its textbook's formula, go through the task's data once more: they need the
        model and its batches, as they were given to ``observe`` or ``loss``. The model is in its
        evaluation mode meanwhile.

        Args:
            model: what was trained.
            batches: those of the task: tuples ``(*inputs, classes)``, or what ``loss`` takes.
            loss: as for ``Learner``; by default the cross-entropy of ``model(*inputs)``.
            outputs: for MAS, the model's outputs for a batch; by default ``model(*inputs)``.
            process_group: ranks that went through a part of the task each; see `GradientMixer`.
        """
        if self._importance is None:
            raise EngramError("A task has ended before a step of it was taken; call step first.")
        check_group(process_group)
        importance, examples = self._importance, 0.0
        if importance.task_pass is not None:
            examples = self._pass(model, batches, loss, outputs, process_group)
        with torch.no_grad():
            weights = self._weights()
            found = importance.end_task(
                weights, self._anchors, examples=examples, first=not self._penalised
            )
            largest = [torch.linalg.vector_norm(each, math.inf) for each in found if each.numel()]
            if not is_finite([each * (2 * self.strength) for each in largest]):
                raise EngramError(
                    f"{self} holds weights by numbers that are not finite: its strength, or the "
                    "gradients of the task, are too large."
                )
            for penalty_weight, each in zip(self._penalty_weights, found, strict=True):
                torch.mul(each, 2 * self.strength, out=penalty_weight)
            torch._foreach_copy_(self._anchors, importance.next_anchor(weights, self._anchors))
        self._penalised, self._steps = True, 0

    @torch.no_grad()
    def value(self) -> Tensor:
        """Return the penalty λ Σ Ω (w − w*)² at the present weights, for a record of it.

        Penalties of several tasks that are held as one, as by EWC's textbook formula, are this up
        to a number that no weight changes.
        """
        terms = [
            (penalty_weight * (now - anchor).square()).sum() / 2
            for penalty_weight, now, anchor in zip(
                self._penalty_weights, self._weights(), self._anchors, strict=True
            )
        ]
        return sum(terms[1:], terms[0]) if terms else torch.zeros(())

    @torch.no_grad()
    def replace(self, old: Tensor, new: Tensor) -> None:
        """Hold ``new`` in place of ``old``, of which it has the values in its first places.

        So a head that has grown keeps the importance of what it had; what is new has none.
        """
        place = next((i for i, each in enumerate(self._parameters) if each is old), None)
        if place is None:
            raise EngramError("The penalty does not hold the parameter that is to be replaced.")
        if old.dim() != new.dim() or any(a > b for a, b in zip(old.shape, new.shape, strict=True)):
            raise EngramError(
                f"A parameter of shape {list(old.shape)} can be replaced by a larger one, not by "
                f"one of shape {list(new.shape)}."
            )
        _check_parameters([new])
        inside = tuple(slice(0, size) for size in old.shape)
        weight = _weight(new)
        importance = self._estimate()

        def grown(former: Tensor, initial: Tensor) -> Tensor:
            initial[inside] = former.to(initial)
            return initial

        for name in importance.state:
            known: list[Tensor] = getattr(importance, name)
            known[place] = grown(known[place], importance.initial(name, weight).clone())
        self._anchors[place] = grown(self._anchors[place], weight.clone())
        penalty_weights = self._penalty_weights
        penalty_weights[place] = grown(penalty_weights[place], torch.zeros_like(weight))
        self._parameters[place] = new
        self._before = None

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on: tensors and plain numbers."""
        importance = self._importance
        gathered = {
            name: [each.clone() for each in getattr(importance, name)]
            for name in ([] if importance is None else importance.state)
        }
        return {
            "kind": type(self).__name__,
            "steps": self._steps,
            "penalised": self._penalised,
            "anchor": [each.clone() for each in self._anchors],
            "penalty_weight": [each.clone() for each in self._penalty_weights],
            "gathered": gathered,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`, bit for bit; one that does not fit changes nothing.

        The parameters must be attached, by a step or by `attach`, and in the same order.
        """
        wanted = {"kind", "steps", "penalised", "anchor", "penalty_weight", "gathered"}
        if not isinstance(state, Mapping) or state.keys() != wanted:
            raise EngramError(f"A penalty's state holds {sorted(wanted)}, and this one does not.")
        if state["kind"] != type(self).__name__:
            raise EngramError(
                f"The state is of the penalty {shown(state['kind'])}, not of {type(self).__name__}."
            )
        weights = self._weights()
        if not state["anchor"] and not state["gathered"]:  # nothing had been learnt
            fresh = self.importance_for(weights) if weights else None
            self._importance, self._steps, self._penalised = fresh, 0, False
            self._anchors = [each.clone() for each in weights]
            self._penalty_weights = [torch.zeros_like(each) for each in weights]
            return
        importance = self.importance_for(weights)
        given = state["gathered"]
        if not isinstance(given, Mapping) or given.keys() != set(importance.state):
            raise EngramError(
                f"The state of this {type(self).__name__} gathers {[*importance.state]}."
            )
        numbers = type(state["steps"]) is int and type(state["penalised"]) is bool
        if not numbers or state["steps"] < 0:
            raise EngramError("The penalty's state has a number of steps that none can have.")
        fitting = {
            name: _fitting(name, saved, weights)
            for name, saved in {**given, **{fact: state[fact] for fact in _FACTS}}.items()
        }
        self._anchors, self._penalty_weights = (fitting.pop(fact) for fact in _FACTS)
        for name, saved in fitting.items():
            setattr(importance, name, saved)
        self._importance, self._before = importance, None
        self._steps, self._penalised = state["steps"], state["penalised"]

    def __repr__(self) -> str:
        over = f", over {len(self._parameters)} parameters" if self._parameters else ""
        return f"{type(self).__name__}(strength={self.strength:g}{over})"

    def _estimate(self) -> Importance:
        assert self._importance is not None
        return self._importance

    @torch.no_grad()
    def _take_in(self, new: Sequence[Tensor]) -> None:
        """Hold parameters that nothing is known of."""
        self._before = None
        weights = [_weight(each) for each in new]
        fresh = self.importance_for(weights)
        if self._importance is None:
            self._importance = fresh
        else:
            for name in fresh.state:
                getattr(self._importance, name).extend(getattr(fresh, name))
        self._parameters += new
        self._anchors += [each.clone() for each in weights]
        self._penalty_weights += [torch.zeros_like(each) for each in weights]

    def _weights(self) -> list[Tensor]:
        """Return the parameters, in float32 at least; as they are, or copies for this once."""
        return [each if each.dtype in _WIDE else _weight(each) for each in self._parameters]

    def _own_gradients(self) -> list[Tensor]:
        """Return what is in ``.grad``, 0 where there is none."""
        gradients = []
        for each, anchor in zip(self._parameters, self._anchors, strict=True):
            own = each.grad
            if own is None:
                gradients.append(torch.zeros_like(anchor))
                continue
            if own.layout is not torch.strided:
                raise EngramError(
                    f"Gradients must be dense, and one of shape {list(own.shape)} is {own.layout}; "
                    "an embedding needs sparse=False."
                )
            gradients.append(own if own.dtype is anchor.dtype else own.to(anchor.dtype))
        return gradients

    def _pass(
        self,
        model: nn.Module | None,
        batches: Iterable[_TaskBatch] | None,
        loss: Loss | None,
        outputs: Outputs | None,
        process_group: GroupChoice,
    ) -> float:
        """Go through the task once more; return how many examples it has."""
        importance = self._estimate()
        assert importance.task_pass is not None
        if model is None or batches is None:
            raise EngramError(
                f"{type(self).__name__} goes through the task once more when it ends: give "
                "end_task the model and the task's batches."
            )
        with torch.no_grad():
            importance.begin_pass(self._weights())
        ranks, examples = ranks_of(process_group, Current()), 0.0
        try:
            examples = self._measure(
                importance, importance.task_pass, model, batches, loss, outputs
            )
        except Exception as error:
            raise_on_all(ranks, error)
            raise
        if ranks is not None:
            examples = self._average(ranks, importance.measured(), examples)
        if not examples:
            raise EngramError("The task's batches hold no example; give those it was learnt from.")
        if not is_finite(importance.measured()):
            raise EngramError(
                "The task's batches have a gradient that is not finite, or too large to be "
                "squared; the penalty is as it was."
            )
        return examples

    def _measure(
        self,
        importance: Importance,
        task_pass: TaskPass,
        model: nn.Module,
        batches: Iterable[_TaskBatch],
        loss: Loss | None,
        outputs: Outputs | None,
    ) -> int:
        """Measure the task's gradients in the model's evaluation mode; return how many examples."""
        trained = [each for each in self._parameters if each.requires_grad]
        examples, modes = 0, {module: module.training for module in model.modules()}
        model.eval()
        try:
            for batch in batches:
                for part, size in _parts(batch, single=task_pass.single):
                    examples += size
                    if task_pass.of == "loss":
                        measured = _loss_of(model, part, loss)
                    else:
                        measured = _squared_outputs(model, part, outputs)
                    self._measure_one(importance, trained, measured)
        finally:
            for module, mode in modes.items():
                module.training = mode
        return examples

    def _measure_one(
        self, importance: Importance, trained: Sequence[Tensor], measured: Tensor
    ) -> None:
        """Measure a batch's gradient, which is gone before the next forward pass."""
        found = torch.autograd.grad(measured, trained, allow_unused=True)
        with torch.no_grad():
            importance.measure(self._aligned(trained, found))

    @torch.no_grad()
    def _average(self, ranks: Ranks, measured: list[Tensor], examples: float) -> float:
        """Let measured and examples be their means over the ranks, whose quotient is the sums'."""
        count = torch.tensor([float(examples)], device=measured[0].device, dtype=torch.float64)
        ranks.average_gradient(measured, measured, self._parameters)
        ranks.average_gradient([count], [count], self._parameters)
        return count.item()

    def _aligned(self, trained: Sequence[Tensor], found: Sequence[Tensor | None]) -> list[Tensor]:
        """Return gradients over all parameters, which may be overwritten."""
        by_parameter = {id(each): g for each, g in zip(trained, found, strict=True)}
        aligned = []
        for parameter, anchor in zip(self._parameters, self._anchors, strict=True):
            own = by_parameter.get(id(parameter))
            if own is None:
                aligned.append(torch.zeros_like(anchor))
            else:
                own = own.to(anchor.dtype)
                # One that is spread over its places, as a sum's is, cannot be overwritten.
                aligned.append(own if all(own.stride()) else own.clone())
        return aligned


def _parameters_of(optimizer: Optimizer | Iterable[Tensor]) -> list[Tensor]:
    if isinstance(optimizer, Optimizer):
        return optimized(optimizer)
    if isinstance(optimizer, Tensor) or not isinstance(optimizer, Iterable):
        raise EngramError(
            f"A penalty holds the parameters of one of torch's optimizers, not {shown(optimizer)}."
        )
    return list({id(each): each for each in optimizer}.values())


def _weight(parameter: Tensor) -> Tensor:
    """Return a parameter in float32 at least."""
    weight = parameter.detach()
    return weight.to(torch.promote_types(weight.dtype, torch.float32))


def _copies(tensors: Weights) -> list[Tensor]:
    """Return copies, which on a GPU are made at once: times 1 every number is itself."""
    return [*torch._foreach_mul(tensors, 1.0)]


def _zero_unless(valid: Tensor, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of a step that is valid, or zeros; nothing is read back."""
    zeros = dict[tuple[torch.device, torch.dtype], Tensor]()
    found = []
    for each in gradients:
        kind = each.device, each.dtype
        if kind not in zeros:
            zeros[kind] = each.new_zeros(())
        found.append(torch.where(valid.to(each.device), each, zeros[kind]))
    return found


def _begin_check(tensors: list[Tensor]) -> Callable[[], bool]:
    """Let a GPU look whether all is finite, as `begin_check` does."""
    if not all(each.is_cuda for each in tensors):
        return begin_check(tensors)
    trouble = _trouble(tensors)
    return lambda: not trouble.item()


def _trouble(tensors: list[Tensor]) -> Tensor:
    """Return a number on the device, 0 if all is finite; it takes one launch more if it can.

    What a GradScaler looks by multiplies by a number too: here 1, which leaves them as they are.
    """
    on_gpu = all(each.is_cuda for each in tensors)
    if not on_gpu or len({(each.get_device(), each.dtype) for each in tensors}) != 1:
        largest = get_total_norm([each for each in tensors if each.numel()], math.inf)
        return largest.isfinite().logical_not()
    device = tensors[0].device
    # Made anew: one that is kept would be read by streams that have not waited for its value.
    found, one = torch.arange(2, dtype=torch.float32, device=device).unbind()
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, one)
    return found


def _check_parameters(parameters: Sequence[Tensor]) -> None:
    refuse_sharded(parameters, "a penalty")
    for each in parameters:
        if not isinstance(each, Tensor) or not each.is_floating_point():
            raise EngramError(f"A penalty holds real parameters, and one is {shown(each)}.")


def _parts(batch: _TaskBatch, *, single: bool) -> Iterator[tuple[Any, int]]:
    """Return a batch with its number of examples or, where they are wanted, its examples."""
    named = isinstance(batch, Mapping)
    tensors = list(batch.values()) if named else list(batch) if isinstance(batch, Sequence) else []
    if not tensors or not all(isinstance(each, Tensor) and each.dim() for each in tensors):
        raise EngramError(
            "A batch of the task is one or more tensors with one row an example, or a dict of "
            f"such tensors, not {shown(type(batch).__name__)}."
        )
    size = len(tensors[0])
    if not single:
        if size:
            yield (dict(batch) if named else tuple(batch)), size
        return
    for place in range(size):
        row = slice(place, place + 1)
        if named:
            yield {name: each[row] for name, each in batch.items()}, 1
        else:
            yield tuple(each[row] for each in batch), 1


def _loss_of(
    model: nn.Module,
    batch: _TaskBatch,
    loss: Loss | None,
) -> Tensor:
    if loss is None:
        if not isinstance(batch, tuple) or len(batch) < 2:
            raise EngramError(
                "Batches that are not (*inputs, classes) need a loss of their own: "
                "end_task(model, batches, loss=…)."
            )
        return functional.cross_entropy(model(*batch[:-1]), batch[-1])
    result = loss(model, batch, None)
    measured: Tensor = result[0] if isinstance(result, tuple) else result
    return measured


def _squared_outputs(
    model: nn.Module,
    batch: _TaskBatch,
    outputs: Outputs | None,
) -> Tensor:
    if outputs is None and (not isinstance(batch, tuple) or len(batch) < 2):
        raise EngramError(
            "Batches that are not (*inputs, classes) need to say what the outputs are: "
            "end_task(model, batches, outputs=…)."
        )
    found = model(*batch[:-1]) if outputs is None else outputs(model, batch)
    if not isinstance(found, Tensor):
        raise EngramError(
            f"The model returns a {type(found).__name__}; say which tensor its outputs are: "
            "end_task(model, batches, outputs=…)."
        )
    return found.square().sum()


def _fitting(name: str, saved: object, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return a state's tensors, on the devices of the weights, if they fit them."""
    tensors: list[Any] = list(saved) if isinstance(saved, Sequence) else []
    pairs = list(zip(tensors, weights, strict=False))
    if len(tensors) != len(weights) or not all(
        isinstance(each, Tensor)
        and each.shape in (weight.shape, (1, *weight.shape))  # as states were once
        and each.dtype == weight.dtype
        for each, weight in pairs
    ):
        raise EngramError(f"The penalty's state does not fit the parameters: {name} is of others.")
    return [torch.empty_like(weight).copy_(each.reshape(weight.shape)) for each, weight in pairs]


def number(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
) -> float:
    """Return a finite number within its bounds, or refuse what is none."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or not least <= value <= most or value <= above:  # type: ignore[arg-type, operator]
        bounds = [f"of at least {least:g}"] if math.isfinite(least) else []
        bounds += [f"above {above:g}"] if math.isfinite(above) else []
        bounds += [f"up to {most:g}"] if math.isfinite(most) else []
        raise EngramError(f"{name} must be a number {' and '.join(bounds)}, not {shown(value)}.")
    return float(value)  # type: ignore[arg-type]


def whole(name: str, value: object) -> int:
    """Return a whole number of at least 1, or refuse what is none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EngramError(f"{name} must be a whole number of at least 1, not {shown(value)}.")
    return value


def choice(name: str, value: _Choice, valid: Sequence[str]) -> _Choice:
    """Return one of the values that there are, or refuse another."""
    if value not in valid:
        raise EngramError(f"{name} must be one of {', '.join(valid)}, not {shown(value)}.")
    return value
