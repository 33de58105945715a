"""The body of a lifelong training loop: a rule and a memory around your model and optimiser."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from engram.errors import EngramError, shown, unknown
from engram.gradients import (
    Check,
    GroupChoice,
    Guard,
    Mix,
    NamedLoss,
    PlannedRow,
    Ranks,
    check_group,
    check_rule,
    compare_again,
    has_parts,
    is_finite,
    is_sharded,
    mix_losses,
    optimized,
    ranks_of,
    refuse_sharded,
)
from engram.memory import IndexStorage, Memory, Ragged
from engram.memory.columns import own_labels
from engram.memory.examples import NONE, Metadata, checked_metadata
from engram.meta import MER, meta_steps
from engram.objectives import Answer, Objective
from engram.penalties import Penalty
from engram.penalties.penalty import TOO_LARGE
from engram.rules import Current, Rule

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from torch.optim.lr_scheduler import LRScheduler

    from engram.memory.memory import Prepared

Batch: TypeAlias = tuple[Tensor, ...] | dict[str, Tensor]
Tags: TypeAlias = Mapping[str, str | int | float | bool | None]
Loss: TypeAlias = Callable[..., Any]
_WRITTEN_TO = (
    "The loss, or the model, writes to the batch that it is given, which the memory is to keep as "
    "it was; let it work on a copy, such as inputs.clone()."
)
# What torch raises for a state that does not fit.
_SMALL_BUFFER = 2**14  # elements, up to which copies of buffers are made together
_NO_STATE = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
# What torch's optimisers keep in the shape of the parameter.
_LIKE_THE_PARAMETER = {
    "acc_delta",
    "ax",
    "exp_avg",
    "exp_avg_sq",
    "exp_inf",
    "grad_avg",
    "max_exp_avg_sq",
    "momentum_buffer",
    "prev",
    "square_avg",
    "step_size",
    "sum",
}


def cross_entropy(
    model: nn.Module,
    batch: Batch,
    tasks: Tensor | None,  # noqa: ARG001
    weights: Tensor | None = None,
) -> Tensor:
    """Return the mean cross-entropy of ``model(*inputs)`` for a batch ``(*inputs, classes)``.

    With weights w of the examples and their losses l it is sum(w * l) / sum(w).
    """
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise EngramError(
            "The default loss takes batches (*inputs, classes); for any other batch, give Learner "
            "a loss of your own."
        )
    *inputs, classes = batch
    outputs = model(*inputs)
    try:
        if weights is None:
            return functional.cross_entropy(outputs, classes)
        losses = functional.cross_entropy(outputs, classes, reduction="none")
        weights = weights.view(-1, *[1] * (losses.dim() - 1)).expand_as(losses)
        return (weights * losses).sum() / weights.sum()
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
    step needs a closure are not served.

    A memory and a penalty are two ways not to forget, and either may be left out: with a penalty
    alone a step is plain training that holds important weights in place; with both, the penalty's
    gradient is added to the mixture.

    A step that is refused changes neither weights nor memory, nor the model's buffers (the running
    averages of batch norm).

    In data parallel training every rank has a learner and a memory of its own, and gives it its
    part of each batch. A row that not all ranks remember (yet) is the mean of those that do, and
    what goes wrong on one rank is an error on all of them. Ranks count by their examples, a loss
    being a mean over them. A model that is wrapped in
    DistributedDataParallel is run under its ``no_sync()``: gradients are averaged here, and buffers
    stay each rank's own. One that is sharded by FSDP2 or tensor parallelism is mixed part by part;
    a rank that remembers nothing yet then sends its batch through the model once more, for nothing.

    Args:
        model: anything that ``loss`` can be computed from.
        optimizer: over the parameters to train; read anew at every step.
        rule: how the gradients are weighed; by default the current one is taken as it is.
        memory: what is remembered; only a rule that looks at no memory can do without.
        penalty: what holds important weights in place, such as ``engram.penalties.EWC(10.0)``. It
            learns from the gradient that the step takes without it.
        loss: ``loss(model, batch, tasks)`` gives a scalar, or a pair of a scalar and the value
            >= 0 that the rule compares instead. ``tasks`` is an int64 tensor with the task of
            each example, or None where there are no tasks. One that has a parameter ``weights``
            is given the examples' weights by that name, where they have any. Or an `Objective`,
            such as ``engram.objectives.DER()``: another loss for what is remembered, columns that
            are remembered beside an example.
        meta: goes through a batch example by example, each among draws from the memory, and keeps a
            part of the way, such as ``engram.meta.MER()``; the rule is plain training then. The
            examples before one that is refused have been learnt.
        reference_batch: how many examples of the memory each step looks at, at most; of each
            task for a rule that wants its rows by task.
        micro_batch: a batch, or a sample of the memory, of more examples goes through the model in
            parts of so many, one graph at a time; the step is that of the whole, if the loss is a
            mean over examples (and the model looks at each by itself, as batch norm does not).
        clip_norm: the length that the step's gradient, the penalty's included, is cut to.
        scaler: for float16: losses are scaled and the step is the scaler's, `update` included. A
            step that it skips moves no weight; its batch is remembered all the same.
        scheduler: of the learning rate, by step: its own step follows every one of the optimiser.
        process_group: the ranks that take every step together, by default all that there are; see
            `GradientMixer`, for what happens where one of them does not take part as well. With
            False, a model that DistributedDataParallel wraps is refused.
        check_finite: a loss or a gradient that is not finite, and a negative value where the rule
            compares values, are refused: with losses on a CPU in the step itself. On a GPU no step
            waits for the answer: from a bad step on neither weights nor memory change, and
            after so many steps the error is raised (or by ``settle``, ``end_task`` and
            ``state_dict``). 0 is for no check. See `GradientMixer` for what an optimiser keeps.
        weights: what becomes of the examples' weights: with ``"loss"`` they go to the loss (the
            default one is then a weighted mean), with ``"sampling"`` the memory is sampled in
            proportion to them and the losses are plain.
        shared: one memory for all ranks of the group: each has a copy, and its batches are
            broadcast to the others before the step. Memories are made alike, with the same seed. A
            sample is of ``reference_batch`` examples for each rank, and divided among them.

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

    # Stands for the guard's flags from one settling to the next: one is true if all before are.
    _flags: object = None

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        rule: Rule | None = None,
        memory: Memory | None = None,
        *,
        penalty: Penalty | None = None,
        loss: Loss | Objective = cross_entropy,
        meta: MER | None = None,
        reference_batch: int = 256,
        micro_batch: int | None = None,
        clip_norm: float | None = None,
        scaler: GradScaler | None = None,
        scheduler: LRScheduler | None = None,
        process_group: GroupChoice = None,
        check_finite: int = 100,
        weights: Literal["loss", "sampling"] = "loss",
        shared: bool = False,
    ) -> None:
        if not isinstance(weights, str) or weights not in ("loss", "sampling"):
            raise unknown("use of weights", weights, ["loss", "sampling"])
        rule = Current() if rule is None else rule
        _check_size("reference_batch", reference_batch)
        if micro_batch is not None:
            _check_size("micro_batch", micro_batch)
        check_rule(rule)
        check_group(process_group)
        if loss is cross_entropy and not callable(model):
            raise EngramError(f"model must be one that can be called, not {shown(model)}.")
        _refuse_sharded(model)
        if not callable(loss) and not isinstance(loss, Objective):
            raise EngramError(f"loss must be a function or an Objective, not {shown(loss)}.")
        if weights == "sampling" and rule.reference == "per task" and not rule.draws_by_task:
            raise EngramError(
                f"weights='sampling' is for what is sampled, and {type(rule).__name__} reads the "
                "same examples of a past task in every step; give it sampled=True."
            )
        if memory is None and rule.reference != "none":
            raise EngramError(
                f"{type(rule).__name__} mixes with what is remembered, and there is no memory; "
                "give one such as Memory(Reservoir(1000))."
            )
        if not isinstance(memory, Memory | None):
            raise EngramError(
                f"memory is a {type(memory).__name__}; give one such as Memory(Reservoir(1000))."
            )
        if isinstance(loss, Objective) and loss.columns and not _keeps_columns(memory):
            raise EngramError(
                f"{type(loss).__name__} remembers {' and '.join(loss.columns)} beside an example, "
                "which a memory of indices, or one that collates, does not keep."
            )
        if not isinstance(shared, bool) or (shared and memory is None):
            raise EngramError(
                f"shared is {shown(shared)}; it is True or False, and True needs a memory."
            )
        if shared and isinstance(loss, Objective) and loss.columns:
            raise EngramError(
                f"{type(loss).__name__} remembers {' and '.join(loss.columns)} beside an example, "
                "which a memory that ranks share does not keep."
            )
        if not isinstance(meta, MER | None):
            raise EngramError(f"meta must be one such as MER(), not {shown(meta)}.")
        if meta is not None:
            _check_meta(rule, memory, loss)
        if not isinstance(penalty, Penalty | None):
            raise EngramError(f"penalty must be one such as EWC(10.0), not {shown(penalty)}.")
        clips = isinstance(clip_norm, int | float) and not isinstance(clip_norm, bool)
        if clip_norm is not None and not (clips and 0 < clip_norm < math.inf):
            raise EngramError(f"clip_norm must be a number above 0, not {shown(clip_norm)}.")
        self.model = model
        self.penalty = penalty
        self.optimizer = optimizer
        self.rule = rule
        self.memory = memory
        self.scheduler = scheduler
        self._scaler = scaler
        self._clip_norm = clip_norm
        self._loss = loss
        self._weights = weights
        self._meta = meta
        self._objective = loss if isinstance(loss, Objective) else None
        self._takes_weights = not isinstance(loss, Objective) and _has_parameter(loss, "weights")
        self._reference_batch = reference_batch
        self._micro_batch = micro_batch
        self._process_group = process_group
        self._guard = Guard(check_finite)
        self._flags = object()
        self._shared = shared

    @property
    def optimizer(self) -> Optimizer:
        """What takes the steps."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer) -> None:
        if not hasattr(optimizer, "param_groups"):
            raise EngramError(
                f"optimizer must be one of torch's, not a {type(optimizer).__name__}."
            )
        _refuse_closure(optimizer)
        if self.penalty is not None:
            refuse_sharded(optimized(optimizer), "a penalty")
        self._optimizer = optimizer

    def __repr__(self) -> str:
        memory, penalty = self.memory, "" if self.penalty is None else f", {self.penalty}"
        if memory is None:
            held = ", no memory"
        else:
            held = (
                f", a memory of {len(memory)} examples by {memory.policy}, "
                f"reference_batch={self._reference_batch}"
            )
        return (
            f"Learner({type(self.model).__name__}, {type(self.optimizer).__name__} over "
            f"{len(optimized(self.optimizer))} parameters, {self.rule}{penalty}{held})"
        )

    def observe(
        self,
        *batch: Tensor | dict[str, Tensor],
        task: int | None = None,
        ids: Tensor | Iterable[int | str] | None = None,
        labels: Tensor | Sequence[int] | None = None,
        tags: Tags | Sequence[Tags | None] | None = None,
        weights: Tensor | Sequence[float] | None = None,
        times: float | Tensor | Sequence[float] | None = None,
    ) -> Mix:
        """Learn from one batch, and offer it to the memory.

        A batch that the memory cannot take is refused before anything is learnt from it. So is one
        with examples of subjects that the memory blocks; where it skips them, they are left out of
        the step as well.

        Args:
            batch: tensors with one row an example, or one dict of such tensors. A column may be a
                `Ragged`, whose examples differ in length. For a memory of indices it is one tensor
                of indices. The loss is given what the memory's ``collate`` makes of them.
            task: the task that the batch belongs to, where there are tasks.
            ids: the examples' names, by which they can be erased.
            labels: their classes, for a memory that keeps examples by class; by default the last
                tensor of the batch, if it holds one integer an example.
            tags: anything else to find them by; see ``Memory.add`` for this and for ``ids``.
            weights: how much each counts, a number above 0; see ``weights`` of the class.
            times: when they were, for a memory that lets examples go by their time.
        """
        if self._meta is not None:
            if weights is not None:
                raise EngramError("MER takes each example once as it comes, and no weights.")
            return self._go_through(self._meta, batch, task, ids, labels, tags, times)
        prepared: list[Prepared] = []
        memory = self.memory

        def prepare(given: Any, labels: Any) -> Prepared:  # noqa: ANN401
            assert memory is not None
            own = memory.prepare(
                given,
                tasks=task,
                labels=labels,
                ids=ids,
                tags=tags,
                weights=weights,
                times=times,
            )
            if not own.size:
                none = "none that is not of a blocked subject" if own.skipped else "none"
                raise EngramError(f"A batch must hold at least one example; this one holds {none}.")
            if check is False and own.magnitude is not None and not own.finite:
                raise EngramError(
                    "The batch holds a value that is not finite, which the memory does not take; "
                    "leave it out, or give the memory allow_nonfinite=True."
                )
            return own

        def losses() -> Iterator[NamedLoss]:
            # All that may go wrong on this rank alone is in here: it is then raised on every rank.
            current = _as_batch(batch)
            if task is not None and not isinstance(task, int):
                raise EngramError(f"task must be one integer, not {shown(task)}.")
            if memory is None:
                if any(each is not None for each in (ids, labels, tags, times)):
                    raise EngramError(
                        "ids, labels, tags and times are what a memory keeps of examples; there is "
                        "none."
                    )
                size = _size_of(current)
                known = checked_metadata(None, None, None, None, size, weights=weights)
                yield from self._losses(current, task, size, None, known)
                return
            if self._objective is not None and self._objective.columns:
                size = _size_of(current)
                known = checked_metadata(None, None, None, None, size, weights=weights)
                own_names = own_labels(current) if labels is None else labels
                yield from self._with_columns(
                    current, task, known, lambda whole: prepare(whole, own_names), prepared
                )
                return
            own = prepare(
                current[0] if isinstance(memory.storage, IndexStorage) else current,  # type: ignore[index]
                labels,
            )
            before = _versions(own.tensors)
            seen = memory.present(own)
            ranks = ranks_of(self._process_group, self.rule) if self._shared else None
            # What the step's value tells, its flag does.
            checked = own._replace(magnitude=None)
            prepared.append(checked if ranks is None else _of_all_ranks(ranks, memory, own))
            yield from self._losses(seen, task, own.size, own.magnitude, own.metadata)
            if _versions(own.tensors) != before:
                raise EngramError(_WRITTEN_TO)

        optimizer, buffers = self._optimizer, _copies(self.model)
        parameters, check = optimized(optimizer), self._guard.check_for(optimizer)
        if self._scaler is not None and self._scaler.is_enabled():
            check = False  # an overflow is the scaler's business
        try:
            mix = self._mix(losses(), parameters, check)
            penalty = self._complete_gradient(check)
            valid = self._guard.valid
        except BaseException:
            _put_back(buffers)
            raise
        if valid is not None and buffers:
            _put_back(buffers, unless=valid)
        self._take_step(penalty)
        if memory is not None:
            memory.file(*prepared, valid=valid, source=self._flags)
        if self._guard.due:
            self.settle()
        return mix

    def _go_through(
        self,
        meta: MER,
        given: tuple[Tensor | dict[str, Tensor], ...],
        task: int | None,
        ids: Any,  # noqa: ANN401
        labels: Any,  # noqa: ANN401
        tags: Any,  # noqa: ANN401
        times: Any,  # noqa: ANN401
    ) -> Mix:
        """Learn a batch's examples one by one; the loss is their mean, each at its own step."""
        memory, losses = self.memory, list[Tensor]()
        assert memory is not None
        if ranks_of(self._process_group, self.rule) is not None:
            raise EngramError(
                "MER takes steps on single examples, which ranks cannot share; give "
                "process_group=False."
            )
        batch = _as_batch(given)
        size = _size_of(batch)
        ids = list(ids) if ids is not None and not isinstance(ids, Tensor) else ids
        known = {"tasks": task, "labels": labels, "ids": ids, "tags": tags, "times": times}
        memory.prepare(batch, **known)  # which refuses the batch, or finds no fault with it
        for place in range(size):
            row = slice(place, place + 1)
            one = _rows_of(batch, row)
            mine = {name: _part_of(each, row) for name, each in known.items()}
            prepared = memory.prepare(one, **mine)
            if not prepared.size:
                continue
            try:
                loss, valid = self._learn_among_draws(meta, one, task, prepared.magnitude)
            except EngramError as error:
                if not losses:
                    raise
                raise EngramError(
                    f"{error} That was example {place} of the batch, counted from 0; those before "
                    "it are learnt and remembered."
                ) from error
            losses.append(loss)
            if valid is not None:  # which tells what the magnitude does
                prepared = prepared._replace(magnitude=None)
            memory.file(prepared, valid=valid, source=self._flags)
        if not losses:
            raise EngramError("A batch must hold at least one example that is not blocked.")
        if self._guard.due:
            self.settle()
        mean = torch.stack(losses).mean().unsqueeze(0)
        return Mix(mean, None, torch.ones_like(mean))

    def _learn_among_draws(
        self, meta: MER, one: Batch, task: int | None, magnitude: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Take the steps of a single example, and keep a part of the way.

        Return its loss and, on a device, whether all steps counted. ``magnitude`` is finite, on a
        device, if all of its values are.
        """
        memory, device = self.memory, _device_of(one)
        assert memory is not None
        parameters = [each.detach() for each in optimized(self._optimizer) if each.requires_grad]
        held = [*_copies(self.model), *(([each], each.clone()) for each in parameters)]
        state = self._optimizer.state
        averages = {
            of: {
                name: each.clone() if isinstance(each, Tensor) else each
                for name, each in own.items()
            }
            for of, own in state.items()
        }

        def drawn() -> list[tuple[Batch, Tensor | None]]:
            sample = memory.draw_again(min(meta.draws, memory.available))
            if sample is None:
                return []
            found, tasks = _moved(sample.batch, [sample.tasks], device)
            rows = [slice(place, place + 1) for place in range(_size_of(found))]
            return [(_rows_of(found, row), None if tasks is None else tasks[row]) for row in rows]

        valid: Tensor | None = None  # of the last step, and so of all before it

        def step(example: tuple[Batch, Tensor | None]) -> Tensor:
            nonlocal valid
            found, tasks = example
            tasks = None if self._loss is cross_entropy else tasks
            check = self._guard.check_for(self._optimizer)
            if self._scaler is not None and self._scaler.is_enabled():
                check = False
            loss, value, *_ = self._evaluate(found, tasks, None, True, 0)
            if found is one:
                value = _checked_value(loss, value, magnitude)
            mix = self._mix(
                iter([NamedLoss("current", loss, value, 1.0)]), optimized(self._optimizer), check
            )
            penalty = self._complete_gradient(check)
            valid = self._guard.valid
            self._take_step(penalty)
            return mix.losses[0]

        def keep(start: list[Tensor], share: float) -> None:
            with torch.no_grad():
                for was, each in zip(start, parameters, strict=True):
                    torch.lerp(was, each, share, out=each)

        own_task = None if task is None else torch.full((1,), task, device=device)
        try:
            losses = meta_steps(
                (one, own_task),
                (drawn() for _ in range(meta.rounds)),
                step=step,
                mark=lambda: [each.clone() for each in parameters],
                keep=keep,
                algorithm=meta.algorithm,
                gamma=meta.gamma,
                beta=meta.beta,
            )
        except BaseException:
            _put_back(held)
            state.clear()
            state.update(averages)
            raise
        if valid is not None:
            _put_back(held, unless=valid)
        return torch.stack(losses).mean(), valid

    def settle(self) -> None:
        """Raise if a step since the last check was void; on a GPU the host waits for the answer.

        Weights and memory are then as they were before the first such step. ``end_task`` and
        ``state_dict`` do so too. On a CPU there is never anything to tell.
        """
        if self.memory is not None:
            self.memory.settle()
        self._flags = object()
        self._guard.settle()

    def end_task(
        self,
        batches: Iterable[Any] | None = None,
        *,
        outputs: Callable[[nn.Module, Any], Tensor] | None = None,
    ) -> None:
        """Tell the memory and the penalty that the task at hand has ended.

        Args:
            batches: those of the task once more, for a penalty that goes through them again; as
                for ``engram.penalties.Penalty.end_task``.
            outputs: the model's outputs for one of them, for MAS; by default ``model(*inputs)``.
        """
        self.settle()
        if self.penalty is not None:
            self.penalty.end_task(
                self.model,
                batches,
                loss=None if self._loss is cross_entropy else self._plain_loss,
                outputs=outputs,
                process_group=self._process_group,
            )
        if self._objective is not None:
            self._objective.end_task(self.model)
        if self.memory is not None:
            self.memory.end_task()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the model, the optimiser, the memory and what else there is."""
        self.settle()
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`, bit for bit; one that does not fit as a whole changes nothing.

        A copy of the model's own state is held meanwhile, on the host.
        """
        parts = self._parts()
        if not isinstance(state, Mapping) or state.keys() != parts.keys():
            held = [*state] if isinstance(state, Mapping) else shown(state)
            raise EngramError(f"A learner's state holds {[*parts]}, and this one {held}.")
        own = _on_host(self.model.state_dict())
        optimizer = dict(vars(self.optimizer))
        others = [
            each
            for each in (self.penalty, self._scaler, self.scheduler, self._objective)
            if each is not None
        ]
        others = [part for each in others for part in _with_parts(each)]
        before = [dict(vars(each)) for each in others]
        if self.penalty is not None:
            self.penalty.attach(self.optimizer)
        name = ""
        try:
            for name, part in parts.items():
                if name == "scheduler":
                    _check_scheduler(part.state_dict(), state[name])
                part.load_state_dict(state[name])
                if name == "optimizer":
                    _check_optimizer(self.optimizer, optimizer["state"])
        except BaseException as error:
            self.model.load_state_dict(own)
            vars(self.optimizer).clear()
            vars(self.optimizer).update(optimizer)
            for each, values in zip(others, before, strict=True):
                vars(each).clear()
                vars(each).update(values)
            if isinstance(error, EngramError) or not isinstance(error, _NO_STATE):
                raise
            reason = str(error).rstrip(". ")
            raise EngramError(f"The state is not of this {name}: {reason}.") from error
        self._flags = object()
        self._guard.reset()
        compare_again(optimized(self.optimizer))  # it may have been loaded on one rank alone

    def _parts(self) -> dict[str, Any]:
        # The memory comes last: it takes over a whole state, or refuses it and stays as it is.
        parts = {
            "model": self.model,
            "optimizer": self.optimizer,
            "penalty": self.penalty,
            "scaler": self._scaler,
            "scheduler": self.scheduler,
            "objective": self._objective,
            "memory": self.memory,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _complete_gradient(self, check: Check) -> Penalty | None:
        """Add the penalty's gradient to ``.grad`` and clip it; return the penalty of this step."""
        optimizer, penalty, scaler = self._optimizer, self.penalty, self._scaler
        if scaler is not None and (penalty is not None or self._clip_norm is not None):
            scaler.unscale_(optimizer)
        if penalty is not None and scaler is not None and scaler.is_enabled():
            skipped = not is_finite([each.grad for each in optimized(optimizer)])
            penalty = None if skipped else penalty
        if penalty is not None:
            trouble = penalty.before_step(
                optimizer, valid=self._guard.valid, check_finite=check is not False
            )
            if trouble is not None:
                self._guard.record_beside(trouble, f"the penalty's gradient {TOO_LARGE}")
                self._guard.zero_if_bad(optimized(optimizer))
        if self._clip_norm is not None:
            clip_grad_norm_(optimized(optimizer), self._clip_norm)
        return penalty

    def _take_step(self, penalty: Penalty | None) -> None:
        """Step along what is in ``.grad``."""
        optimizer, scaler = self._optimizer, self._scaler
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if penalty is not None:
            penalty.after_step()
        if self.scheduler is not None:
            self.scheduler.step()

    def _losses(
        self,
        current: Batch,
        task: int | None,
        size: int,
        magnitude: Tensor | None,
        known: Metadata,
        kept: list[Mapping[str, Tensor]] | None = None,
    ) -> Iterator[NamedLoss]:
        """Yield the losses of a step, the current one last: it matters to running averages.

        So it is in the paper's experiments, too. ``magnitude`` is finite, on a device, if all
        values of the current batch are. ``kept`` takes what an objective wants to be remembered.
        """
        device = _device_of(current)
        with_tasks = self._loss is not cross_entropy  # which never looks at them
        own = self._own_weights(known, device)
        tasks = None
        if with_tasks and task is not None:
            tasks = torch.full((size,), task, device=device)

        def rows() -> Iterator[_Row]:
            alone = True
            for found in self._drawn_rows(with_tasks, task, device):
                alone = False
                yield found
            yield _Row("current", current, tasks, own, alone)

        ranks = ranks_of(self._process_group, self.rule)
        if ranks is not None and has_parts(optimized(self._optimizer)):
            evaluated = self._evaluated_together(ranks, [*rows()])
        else:
            evaluated = ((row, each) for row in rows() for each in self._in_parts(row))
        for row, (loss, value, columns, examples) in evaluated:
            if row.name == "current":
                value = _checked_value(loss, value, magnitude)
                if kept is not None and columns is not None:
                    kept.append(columns)
            yield NamedLoss(row.name, loss, value, 1.0 if ranks is None else float(examples))

    def _evaluated_together(
        self, ranks: Ranks, rows: Sequence[_Row]
    ) -> Iterator[tuple[_Row, _Evaluated]]:
        """Yield the losses of the rows that any rank has, each times this rank's share of it.

        Of a sharded model every pass is a collective call: a rank that lacks a row, or has fewer
        parts of it, takes part by passes of its own batch that count nothing.
        """
        own: dict[str, list[_Row]] = {}
        for row in rows:
            own.setdefault(row.name, []).append(row)
        planned = []
        for label, drawn in own.items():
            sizes = [_size_of(row.batch) for row in drawn]
            most = self._micro_batch
            parts = sum(1 if most is None else -(-size // most) for size in sizes)
            # Each draw is a mean, and all are of one size.
            count = float(_examples(drawn[0].weights, sizes[0]))
            planned.append(PlannedRow(label, count, parts))
        for name, share, parts in ranks.plan_rows(planned):
            drawn = own.get(str(name), [])
            spare = parts
            for row in drawn:
                for loss, value, columns, _ in self._in_parts(row):
                    spare -= 1
                    shared = None if value is None else value * share
                    yield row, _Evaluated(loss * share, shared, columns)
            row = drawn[0] if drawn else rows[-1]._replace(name=str(name))
            for _ in range(spare):
                loss, value, _, _ = next(self._in_parts(row))
                yield row, _Evaluated(loss * 0, None if value is None else value * 0, None)

    def _with_columns(
        self,
        current: Batch,
        task: int | None,
        known: Metadata,
        prepare: Callable[[Batch], Prepared],
        prepared: list[Prepared],
    ) -> Iterator[NamedLoss]:
        """Yield the losses of a step whose batch is remembered with columns of its objective.

        What the memory is to take is known when the last loss is there, and checked before it is
        given out.
        """
        assert self._objective is not None
        kept, before = list[Mapping[str, Tensor]](), _versions(_tensors(current))
        last: NamedLoss | None = None
        for each in self._losses(current, task, _size_of(current), None, known, kept):
            if last is not None:
                yield last
            last = each if each.name == "current" else None
            if last is None:
                yield each
        assert last is not None
        columns = {
            name: torch.cat([part[name] for part in kept]) for name in self._objective.columns
        }
        if _versions(_tensors(current)) != before:
            raise EngramError(_WRITTEN_TO)
        own = prepare(_joined(current, columns))
        if own.skipped:
            raise EngramError(
                "The batch has examples of a blocked subject, which an objective that remembers "
                "columns cannot leave out; leave them out of the batch."
            )
        prepared.append(own._replace(magnitude=None))
        yield last._replace(value=_checked_value(last.loss, last.value, own.magnitude))

    def _plain_loss(self, model: nn.Module, batch: Any, tasks: Tensor | None) -> Any:  # noqa: ANN401
        """Return the loss of a batch by itself."""
        if self._objective is not None:
            return self._objective.current(model, batch, tasks, alone=True).loss
        return self._loss(model, batch, tasks)  # type: ignore[operator]

    def _own_weights(self, known: Metadata, device: torch.device) -> Tensor | None:
        """Return the weights of the batch for the loss, or refuse such as it has no use for."""
        own = known.measures.get("weights")
        held = self.memory is not None and self.memory.has_weights
        if self._weights != "loss" or (own is None and not held):
            return None
        if not self._takes_weights:
            raise EngramError(
                "The examples have weights, and the loss takes none; give it a parameter "
                "'weights', or Learner weights='sampling'."
            )
        return None if own is None else torch.tensor(own, device=device)

    def _in_parts(self, row: _Row) -> Iterator[_Evaluated]:
        """Yield the loss of a batch and its value or, of a large one, the shares of its parts."""
        _, batch, tasks, weights, alone, draw = row
        most, size = self._micro_batch, _size_of(batch)
        if most is None or size <= most:
            examples = _examples(weights, size)
            loss, value, columns, _ = self._evaluate(batch, tasks, weights, alone, draw)
            yield _Evaluated(loss, value, columns, examples)
            return
        total = None if weights is None else weights.sum()
        for start in range(0, size, most):
            part = slice(start, start + most)
            own = None if weights is None else weights[part]
            loss, value, columns, _ = self._evaluate(
                _rows_of(batch, part), None if tasks is None else tasks[part], own, alone, draw
            )
            count = min(most, size - start)
            share: Any = count / size
            if own is not None and total is not None:
                share = (own.sum() / total).to(loss.dtype)
            shared = None if value is None else value * share
            yield _Evaluated(loss * share, shared, columns, _examples(own, count))

    def _drawn_rows(
        self, with_tasks: bool, task: int | None, device: torch.device
    ) -> Iterator[_Row]:
        """Yield the reference rows; of several draws those of one row follow one another."""

        def drawn(draw: int) -> Iterator[_Row]:
            for name, batch, *columns in self._references(with_tasks, task):
                moved, of_tasks, weights = _moved(batch, columns, device)
                yield _Row(name, moved, of_tasks, weights, None, draw)

        if self._draws == 1:
            yield from drawn(0)
            return
        by_name: dict[str, list[_Row]] = {}
        for draw in range(self._draws):
            for row in drawn(draw):
                by_name.setdefault(row.name, []).append(row)
        for parts in by_name.values():
            yield from parts

    @property
    def _draws(self) -> int:
        return 1 if self._objective is None else self._objective.draws

    def _references(
        self, with_tasks: bool, current: int | None
    ) -> Iterator[tuple[str, Batch, Tensor | None, Tensor | None]]:
        """Yield name, batch, tasks and weights of each reference row that the rule wants."""
        if self.memory is None:
            return
        if self.rule.reference not in ("pooled", "per task"):
            return
        count, ranks = self._reference_batch, ranks_of(self._process_group, self.rule)
        if self._shared and ranks is not None:
            rank, number = ranks.place
            for name, batch, *columns in self._samples(count * number, with_tasks, current):
                size = _size_of(batch)
                own = slice(rank * size // number, (rank + 1) * size // number)
                if own.start < own.stop:
                    tasks, weights = (None if each is None else each[own] for each in columns)
                    yield name, _rows_of(batch, own), tasks, weights
            return
        yield from self._samples(count, with_tasks, current)

    def _samples(
        self, count: int, with_tasks: bool, current: int | None
    ) -> Iterator[tuple[str, Batch, Tensor | None, Tensor | None]]:
        """Yield what the memory gives for each reference row."""
        rule, memory = self.rule, self.memory
        assert memory is not None
        with_weights, weighted = self._weights == "loss", self._weights == "sampling"
        if rule.reference == "pooled":
            found = memory.references(
                count, with_tasks=with_tasks, with_weights=with_weights, weighted=weighted
            )
            if found is not None:
                yield "memory", *found
            return
        if rule.draws_by_task:
            samples = memory.sample(count, by_task=True, weighted=weighted) or {}
        else:
            samples = memory.last(count)
        for task, sample in samples.items():
            if task == current and memory.policy.include_current:
                continue  # it is not past
            tasks = sample.tasks if with_tasks else None
            yield f"task {task}", sample.batch, tasks, sample.weights if with_weights else None

    def _mix(self, losses: Iterator[NamedLoss], parameters: list[Tensor], check: Check) -> Mix:
        group = self._process_group
        # Not by isinstance: it asks an abstract base class, which takes ten times as long.
        if DistributedDataParallel not in type(self.model).__mro__:
            return self._mix_in(group, losses, parameters, check)
        wrapped: Any = self.model
        if group is False and wrapped.process_group.size() > 1:
            raise EngramError(
                "The model is wrapped in DistributedDataParallel, which averages gradients over "
                "ranks, and with process_group=False a rank trains alone: give the module itself, "
                "model.module."
            )
        with wrapped.no_sync():  # it is this learner that averages
            return self._mix_in(group, losses, parameters, check)

    def _mix_in(
        self,
        group: GroupChoice,
        losses: Iterator[NamedLoss],
        parameters: list[Tensor],
        check: Check,
    ) -> Mix:
        return mix_losses(
            losses,
            parameters,
            self.rule,
            process_group=group,
            check=check,
            one_by_one=self._micro_batch is not None or self._draws > 1,
            scaler=self._scaler,
        )

    def _evaluate(
        self,
        batch: Batch,
        tasks: Tensor | None,
        weights: Tensor | None,
        alone: bool | None,
        draw: int,
    ) -> _Evaluated:
        objective = self._objective
        if objective is not None:
            if alone is None:
                batch, columns = _parted(batch, objective.columns)
                answer = objective.remembered(self.model, batch, tasks, columns, draw)
            else:
                answer = objective.current(self.model, batch, tasks, alone=alone)
            if not isinstance(answer, Answer):
                raise EngramError(
                    f"{type(objective).__name__} must give an Answer, not {shown(answer)}."
                )
            return _Evaluated(*answer)
        own = {} if weights is None else {"weights": weights}
        result = self._loss(self.model, batch, tasks, **own)  # type: ignore[operator]
        if not isinstance(result, tuple):
            return _Evaluated(result)
        if len(result) != 2:
            raise EngramError(f"loss must return one number, or two, not {len(result)}.")
        return _Evaluated(*result)


class _Evaluated(NamedTuple):
    """A loss, what the rule compares instead of it, and what is to be remembered beside."""

    loss: Tensor
    value: Tensor | float | None = None
    columns: Mapping[str, Tensor] | None = {}  # None for what is not to be remembered
    examples: Tensor | float = 1.0  # of how many it is the mean, or the sum of their weights


class _Row(NamedTuple):
    """What a row's loss is computed of."""

    name: str
    batch: Batch
    tasks: Tensor | None
    weights: Tensor | None
    alone: bool | None  # None for a batch of the memory, else whether there is none
    draw: int = 0  # which of the memory's


def _check_meta(rule: Rule, memory: Memory | None, loss: Loss | Objective) -> None:
    """Refuse what does not go with steps on single examples."""
    if memory is None:
        raise EngramError("MER draws from a memory; give one such as Memory(Reservoir(5120)).")
    if rule.reference != "none" or isinstance(loss, Objective):
        raise EngramError(
            "MER takes plain steps on single examples: it goes with no rule that mixes, and with "
            "no objective."
        )
    if isinstance(memory.storage, IndexStorage) or memory.collate is not None:
        raise EngramError("MER takes examples one by one, from a memory that holds tensors.")


def _part_of(known: Any, row: slice) -> Any:  # noqa: ANN401
    """Return what is known of one example of a batch, where it is given for each."""
    each = isinstance(known, Sequence) and not isinstance(known, str)
    return known[row] if each or (isinstance(known, Tensor) and known.dim()) else known


def _examples(weights: Tensor | None, size: int) -> Tensor | float:
    """Return by what a mean over examples counts: their number, or the sum of their weights."""
    return size if weights is None else weights.sum()


def _of_all_ranks(ranks: Ranks, memory: Memory, own: Prepared) -> Prepared:
    """Return the batch of all ranks, each one's examples after those of the rank before it."""
    own, columns = memory.with_labels(own), list[Tensor]()
    for each in own.tensors:
        lengths = torch.tensor(each.lengths) if isinstance(each, Ragged) else None
        columns += [each] if lengths is None else [each.values, lengths.to(each.device)]
    known = own.metadata
    numbers = [[None if each == NONE else each for each in own] for own in known[:2]]
    alike = [len(memory), repr(memory.policy)]
    message = [alike, *numbers, known.ids, known.tags, dict(known.measures)]
    found, every = ranks.gather(columns, message)
    others: Any = [*zip(*every, strict=True)]
    for rank, each in enumerate(others[0]):
        if each != others[0][0]:
            raise EngramError(
                "A shared memory must be the same on all ranks; rank 0 has one of "
                f"{others[0][0][0]} examples by {others[0][0][1]}, rank {rank} one of {each[0]} by "
                f"{each[1]}."
            )
    joined = iter([torch.cat(parts) for parts in zip(*found, strict=True)])

    def whole(column: Any) -> Any:  # noqa: ANN401
        if isinstance(column, Ragged):
            return Ragged.packed(next(joined), next(joined).tolist())
        return next(joined)

    batch = own.batch
    batch = whole(batch) if isinstance(batch, Tensor | Ragged) else _changed(batch, whole)
    tasks, labels, ids, tags = (
        [each for part in own for each in part or [None]] for own in others[1:5]
    )
    measures = {
        name: [each for part in others[5] for each in part[name]] for name in known.measures
    }
    return memory.prepare(
        batch,
        tasks=None if None in tasks else tasks,
        labels=None if None in labels else labels,
        ids=None if None in ids else ids,
        tags=tags,
        weights=measures.get("weights"),
        times=measures.get("times"),
    )


def _keeps_columns(memory: Memory | None) -> bool:
    """Tell whether columns may be remembered beside those of a batch."""
    return memory is None or not (
        isinstance(memory.storage, IndexStorage) or memory.collate is not None
    )


def _joined(batch: Batch, columns: Mapping[str, Tensor]) -> Batch:
    """Return a batch with more columns."""
    if not isinstance(batch, dict):
        return (*batch, *columns.values())
    if taken := batch.keys() & columns.keys():
        raise EngramError(
            f"The batch has a column {min(taken)!r}, which the objective remembers beside it; give "
            "it another name."
        )
    return {**batch, **columns}


def _parted(batch: Batch, names: Sequence[str]) -> tuple[Batch, dict[str, Tensor]]:
    """Return what was joined: a batch, and its last columns by name."""
    if not names:
        return batch, {}
    if isinstance(batch, dict):
        columns = {name: batch[name] for name in names}
        return {name: each for name, each in batch.items() if name not in columns}, columns
    count = len(batch) - len(names)
    return tuple(batch[:count]), dict(zip(names, batch[count:], strict=True))


def _checked_value(
    loss: Tensor, value: Tensor | float | None, magnitude: Tensor | None
) -> Tensor | float | None:
    """Return the value, NaN where the batch is not finite, which its device alone may know.

    The batch's ``magnitude`` is finite where that is.
    """
    if magnitude is None:
        return value
    value = loss if value is None else value
    if isinstance(value, Tensor):
        # Times 0 everything finite is 0, and nothing else is.
        return torch.add(value.detach(), magnitude.to(value.device), alpha=0)
    if isinstance(value, int | float):
        return torch.where(magnitude < math.inf, value, math.nan)
    return value


def _versions(tensors: Iterable[Tensor]) -> list[int]:
    """Return how often each tensor was written to; those of inference mode do not tell."""
    own = [each if isinstance(each, Tensor) else each.values for each in tensors]
    return [0 if each.is_inference() else each._version for each in own]


def _refuse_sharded(model: object) -> None:
    if isinstance(model, nn.Module):
        for module in model.modules():
            if is_sharded(type(module)):
                raise EngramError(
                    f"model holds a {type(module).__name__}, whose parameters hold parts of "
                    "others, which is not supported; shard it by torch.distributed.fsdp."
                    "fully_shard (FSDP2), or replicate it, as DistributedDataParallel does."
                )


def _refuse_closure(optimizer: Optimizer) -> None:
    try:  # of the class: a scheduler of the learning rate puts another step on the optimiser
        _, *needed = inspect.signature(type(optimizer).step).parameters.values()
    except (AttributeError, TypeError, ValueError):
        return
    for each in needed:
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD:
            raise EngramError(
                f"{type(optimizer).__name__}.step() needs a {each.name}, which Learner has none "
                "of: it takes one step, along gradients that are mixed once."
            )


def _copies(model: object) -> list[tuple[list[Tensor], Tensor]]:
    """Return a model's buffers, small ones of a kind together, and what they hold before a step.

    A network has many of a few numbers, and on a GPU each call is a launch.
    """
    buffers = _buffers_of(model) if isinstance(model, nn.Module) else []
    if not buffers:
        return []
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    alone: list[list[Tensor]] = []
    for each in buffers:
        plain = type(each) is Tensor and each.layout is torch.strided
        if plain and each.numel() <= _SMALL_BUFFER and each.is_contiguous():
            kinds.setdefault((each.device, each.dtype), []).append(each)
        else:
            alone.append([each])
    return [(own, _together(own)) for own in (*kinds.values(), *alone)]


def _buffers_of(model: nn.Module) -> list[Tensor]:
    """Return what ``model.buffers()`` does, in some order; that takes as long as many launches."""
    modules, buffers = {id(model): model}, dict[int, Tensor]()
    waiting = [model]
    while waiting:
        module = waiting.pop()
        for buffer in module._buffers.values():
            if buffer is not None:
                buffers[id(buffer)] = buffer
        for child in module._modules.values():
            if child is not None and id(child) not in modules:
                modules[id(child)] = child
                waiting.append(child)
    return [*buffers.values()]


@torch.no_grad()
def _together(buffers: Sequence[Tensor]) -> Tensor:
    """Return what buffers hold, as one vector of a copy; a single one keeps its form."""
    if len(buffers) == 1:
        return buffers[0].detach().clone()
    dimensions = {each.dim() for each in buffers}
    if dimensions == {0}:
        return torch.stack([*buffers])
    return torch.cat([*buffers] if dimensions == {1} else [each.view(-1) for each in buffers])


@torch.no_grad()
def _put_back(
    buffers: Iterable[tuple[Sequence[Tensor], Tensor]], unless: Tensor | None = None
) -> None:
    """Let buffers hold what they did, unless a truth on a device says that the step counts."""
    for own, held in buffers:
        counts = None if unless is None else unless.to(held.device)
        if len(own) == 1:
            (buffer,) = own
            if counts is None:
                buffer.copy_(held)
            else:
                torch.where(counts, buffer, held, out=buffer)
            continue
        before = held if counts is None else torch.where(counts, _together(own), held)
        # A call for each would take a step longer than all that the device does here.
        dimensions = {each.dim() for each in own}
        if dimensions == {0}:
            parts = [*before.unbind()]
        else:
            parts = [*torch.split(before, [each.numel() for each in own])]
            if dimensions != {1}:
                parts = [part.view(each.shape) for part, each in zip(parts, own, strict=True)]
        torch._foreach_copy_([*own], parts)


def _on_host(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a model's state."""
    copies = {}
    for name, held in state.items():
        tensor = isinstance(held, Tensor)
        copies[name] = held.detach().to("cpu", copy=True) if tensor else copy.deepcopy(held)
    return copies


def _with_parts(part: Any) -> list[Any]:  # noqa: ANN401
    """Return a part of a learner and, of a scheduler that is made of others, those too."""
    return [part, *(own for each in vars(part).get("_schedulers", ()) for own in _with_parts(each))]


def _check_scheduler(own: Mapping[str, Any], state: object) -> None:
    """Refuse a scheduler's state that lacks what this one saves; torch takes over any."""
    missing = {name for name in own if not name.startswith("_") or name == "_schedulers"}
    missing -= state.keys() if isinstance(state, Mapping) else set()
    if missing:
        raise EngramError(
            f"The state is not of this scheduler: it has no {', '.join(sorted(missing))}."
        )


def _check_optimizer(optimizer: Optimizer, before: Mapping[Tensor, Any]) -> None:
    """Refuse a state that an optimiser has taken over, and that it cannot go on from."""
    for group in optimizer.param_groups:
        missing = sorted(optimizer.defaults.keys() - group.keys())
        if missing:
            raise EngramError(
                f"The state is not of this optimizer, {type(optimizer).__name__}: it has no "
                f"{', '.join(missing)}."
            )
    for parameter in optimized(optimizer):
        for name, held in optimizer.state.get(parameter, {}).items():
            known = before.get(parameter, {}).get(name)
            wanted = known.shape if isinstance(known, Tensor) else parameter.shape
            if isinstance(held, Tensor) and held.shape != wanted:
                if known is None and name not in _LIKE_THE_PARAMETER:
                    continue
                raise EngramError(
                    f"The state is not of this optimizer: its {name} is of shape "
                    f"{list(held.shape)}, for a parameter that needs {list(wanted)}."
                )


def _as_batch(given: tuple[Tensor | dict[str, Tensor], ...]) -> Batch:
    """Return one dict or a tuple of tensors, or refuse what is neither."""
    batch: Any = given[0] if len(given) == 1 and isinstance(given[0], dict) else given
    if batch and all(
        each.dim() if isinstance(each, Tensor) else isinstance(each, Ragged)
        for each in _tensors(batch)
    ):
        return batch  # type: ignore[no-any-return]
    raise EngramError(
        "A batch is one or more tensors with one row an example, or one dict of such tensors; "
        f"observe() was given {[type(part).__name__ for part in given] or 'nothing'}."
    )


def _check_size(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise EngramError(f"{name} is {shown(value)}; it must be a whole number of at least 1.")


def _size_of(batch: Batch) -> int:
    """Return how many examples a batch holds."""
    # The length of a tensor is asked for in Python: its shape is there at once.
    sizes = {
        each.shape[0] if isinstance(each, Tensor) and each.dim() else len(each)
        for each in _tensors(batch)
    }
    if len(sizes) > 1:
        raise EngramError(
            f"A batch's tensors must have one row an example each; these have {sorted(sizes)} rows."
        )
    size = sizes.pop()
    if not size:
        raise EngramError("A batch must hold at least one example; this one holds none.")
    return size


def _rows_of(batch: Any, part: slice) -> Any:  # noqa: ANN401  # as collate made it
    return _changed(batch, lambda column: column[part])


def _tensors(batch: Batch) -> Iterator[Tensor]:
    if type(batch) is not tuple and isinstance(batch, Tensor | Ragged):
        return iter([batch])  # type: ignore[list-item]
    return iter(batch.values() if isinstance(batch, dict) else batch)


def _changed(batch: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401  # as collate made it
    """Return a batch with every column changed, however it is nested."""
    if isinstance(batch, Tensor | Ragged):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: _changed(part, change) for name, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_changed(part, change) for part in batch]
        return parts if isinstance(batch, list) else tuple(parts)
    return batch


def _device_of(batch: Any) -> torch.device:  # noqa: ANN401  # as collate made it
    """Return the device of a batch's first column, the host's where there is none."""
    if type(batch) is tuple and batch and isinstance(batch[0], Tensor):  # as a rule
        return batch[0].device
    found: list[torch.device] = []
    _changed(batch, lambda column: found.append(column.device))
    return found[0] if found else torch.device("cpu")


def _moved(batch: Batch, known: Iterable[Tensor | None], device: torch.device) -> tuple[Any, ...]:
    """Return a batch of the memory and what is known of it, on the device of the batch at hand."""
    if _device_of(batch) == device:
        return batch, *known
    batch = _changed(batch, lambda column: column.to(device))
    return batch, *(None if column is None else column.to(device) for column in known)


def _has_parameter(loss: Loss, name: str) -> bool:
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):  # some that are written in C say nothing of themselves
        return False
    return any(each.name == name or each.kind is each.VAR_KEYWORD for each in parameters)
