"""The mixer: a rule inside any training loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from engram.errors import EngramError, shown
from engram.gradients.backward import CURRENT, check_loss, compared_value, differentiate
from engram.gradients.capture import CapturedStep
from engram.gradients.finite import Guard
from engram.gradients.gram import Gradient, check_rows
from engram.gradients.mixing import Mix, check_rule, clear_gradients, mix_rows
from engram.gradients.parallel import (
    GroupChoice,
    Names,
    check_group,
    raise_on_all,
    ranks_of,
    shards_for,
)
from engram.gradients.sharded import has_parts, own_parts, refuse_pending
from engram.rules import Rule

if TYPE_CHECKING:
    from torch.amp import GradScaler


class GradientMixer:
    """Mixes the gradients of a step's losses by a rule, in place of ``loss.backward()``.

    One step is ``backward`` for every loss, in any order, then ``mix``, then the optimiser's own
    step. Whatever the optimiser holds at that moment is the vector: frozen parameters are left
    out, parameters that were added since the last step are in, and one that no row reaches keeps
    ``.grad`` None. The mixer owns ``.grad``: what it held before is dropped, no ``zero_grad`` is
    needed. A pooled rule never has more than two gradients in memory.

    A step that is given up between ``backward`` and ``mix`` leaves its rows: call ``mix`` and take
    no step, or make a new mixer, or the next step is added to them.

    Args:
        optimizer: holds the parameters; read at every call.
        rule: how the rows are weighed.
        process_group: data parallel training. ``mix`` averages gradients and values over the
            group before the rule sees them, so that every rank takes the same step. By default it
            is torch's default group, wherever that has several ranks when a step is mixed; False
            is for a rank that trains alone, with a bare module: a wrapper would average gradients,
            and not what the rule compares. All ranks of a group must take part in every step, or
            the others wait for them, up to the group's timeout: a rank that has run out of batches
            or has left the loop with an error, or one that alone was given False. The weights must
            be the same on all ranks, which is checked in the first step, whenever there are other
            parameters and after every 100 steps; the rule in every step. Losses may come from the
            bare module, or from one that is wrapped in DistributedDataParallel; under its
            ``no_sync()`` gradients travel once instead of twice. Parameters may be DTensors, as of
            FSDP2: then ``backward`` itself is a collective call, and every rank makes the same ones
            in the same order. Ranks count the same, unless losses are times their `rank_share`.
        scaler: mixed precision. Gradients are scaled by it, and stay scaled for its ``step``; the
            rule and the ``Mix`` see none of it. An overflow is left in ``.grad`` for it to find.
        check_finite: losses and gradients that are not finite, and negative values where the rule
            compares them, are refused by ``mix``, which names the row. With losses on a CPU that
            is in every step. On a GPU no step waits for the answer: ``optimizer.step()`` is void
            from a bad step on, and after so many steps (1024 at most, or by ``settle``) the error
            is raised; 0 is for no check. An optimiser with ``fused=True`` skips a void step by
            itself; any other takes it with gradients of 0, and its weights are put back. Running
            averages that a forward pass moves, as batch norm's, are the model's own. With a scaler
            that is enabled all this is its business.

    >>> import torch
    >>> from engram.rules import MEGA2
    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> optimizer = torch.optim.SGD([weight], lr=1.0)
    >>> mixer = GradientMixer(optimizer, MEGA2())
    >>> mixer.backward(3 * weight[0], value=4.0)
    >>> mixer.backward(9 * weight[1], row="memory", value=3.0)
    >>> mix = mixer.mix()
    >>> mix.gram
    tensor([[ 9.,  0.],
            [ 0., 81.]])
    >>> weight.grad  # as long as the current gradient, (3, 0), and nearer to it by 4 to 3
    tensor([2.4000, 1.8000])
    >>> optimizer.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        rule: Rule,
        *,
        process_group: GroupChoice = None,
        scaler: GradScaler | None = None,
        check_finite: int = 100,
    ) -> None:
        check_rule(rule)
        check_group(process_group)
        if not hasattr(optimizer, "param_groups"):
            raise EngramError(
                f"optimizer must be one of torch's, or hold param_groups as they do; "
                f"it is a {type(optimizer).__name__}."
            )
        self._optimizer = optimizer
        self._rule = rule
        self._process_group = process_group
        self._scaler = scaler
        self._guard = Guard(check_finite)
        self._rows: dict[Hashable, _Row] = {}
        self._last: Hashable = None  # the row that was added to

    def backward(
        self, loss: Tensor, *, row: Hashable = CURRENT, value: Tensor | float | None = None
    ) -> None:
        """Add the loss's gradient and its value to a row, and free its graph.

        Called again for the same row, both accumulate, as gradients do: for k micro-batches pass
        each one's mean loss divided by k (and its ``value`` divided by k).

        Args:
            loss: what is differentiated, one number.
            row: "current" for the batch at hand, else the name of a reference row: one name for
                a pooled rule, one a task for a rule that wants its rows by task.
            value: what the rule compares, >= 0, where it is not the loss itself: the loss without
                its penalty or its label smoothing, for example.
        """
        check_loss(loss)
        try:
            hash(row)
            names = not isinstance(row, Tensor)  # which is told from others element by element
        except TypeError:
            names = False
        if not names:
            raise EngramError(f"row must be a name or a number, not {shown(row)}.")
        filled = _Row(compared_value(loss, value))
        known = self._rows.get(row)
        if known is not None:
            filled = replace(known, value=known.value + filled.value)
        else:
            self._check_name(row)
        try:
            parameters = optimized(self._optimizer)
            shards_for(parameters, ranks_of(self._process_group, self._rule))
            if row != self._last or not self._rows:
                refuse_pending(parameters)  # what would become this row's
            self._last = row
            scaled = loss if self._scaler is None else self._scaler.scale(loss)
            filled.add_gradient(scaled, parameters)
        except BaseException:
            self._rows = {}  # the rows may hold a part of what they should
            clear_gradients(optimized(self._optimizer))  # so may .grad, where it was being cleared
            raise
        self._rows[row] = filled

    def mix(self) -> Mix:
        """Write the mixture of the rows to ``.grad`` and begin anew.

        Also where it raises, the rows are gone and ``.grad`` is None.
        """
        rows, self._rows = self._rows, {}
        parameters = optimized(self._optimizer)
        clear_gradients(parameters)
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        names: Names = sorted(rows, key=lambda name: name != CURRENT)
        losses = [rows[name].value for name in names]
        gradients = [rows[name].over(trained) for name in names]
        ranks = ranks_of(self._process_group, self._rule)
        try:
            refuse_pending(trained)
            shards = shards_for(trained, ranks)
            if shards is not None:
                gradients = shards.aligned(gradients)
            if ranks is not None:
                check_rows([own_parts(row) for row in gradients])
        except EngramError as error:
            raise_on_all(ranks, error)
            raise
        if ranks is not None:
            names, losses, gradients = ranks.average_rows(
                names, losses, gradients, trained, parameters, absent=False
            )
        if CURRENT not in rows:
            raise EngramError(
                f"mix() needs the row {CURRENT!r}, and {names or 'nothing'} was given; call "
                "backward(loss) for the current batch first."
            )
        scale, check = None, self._guard.check_for(self._optimizer)
        if self._scaler is not None:
            scale = self._scaler.scale(torch.ones_like(losses[0]))  # not read back to the host
            check = check if not self._scaler.is_enabled() else False
        try:
            mix = mix_rows(
                self._rule,
                names,
                losses,
                gradients,
                trained,
                scale=scale,
                check=check,
                shards=shards,
            )
            if self._guard.due:
                self._guard.settle()
        except BaseException:
            clear_gradients(trained)
            raise
        return mix

    def capture(self, step: Callable[..., Any]) -> CapturedStep:
        """Return the step as one that is replayed as a CUDA graph, for models of small kernels.

        ``step`` is a function of tensors, on the GPU: it computes the losses, gives them to
        `backward`, calls `mix` and takes the optimiser's step; it may clip, and return tensors or
        the `Mix`, of which the caller gets copies. Every call of what is returned is one step of
        the training. The first three for tensors of the same shapes are taken as they are, the
        next one is captured, and from there on that is replayed: the function itself is called no
        more. So what it does on the host has to stay outside: sampling a memory and adding to it,
        the schedule, logging. What Python has decided is decided: the model's mode, for one.

        An optimiser that knows ``capturable`` needs it. Where a number of it changes (a learning
        rate that is no tensor on the GPU), or a parameter is frozen or added, all begins anew. What
        has no graph is refused: ranks, a scaler. On a CPU every step is taken as it is.

        >>> import torch
        >>> from engram.rules import MEGA2
        >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> optimizer = torch.optim.SGD([weight], lr=1.0)
        >>> mixer = GradientMixer(optimizer, MEGA2())
        >>> def step(inputs, remembered):
        ...     mixer.backward((weight * inputs).sum(), value=4.0)
        ...     mixer.backward((weight * remembered).sum(), row="memory", value=3.0)
        ...     mix = mixer.mix()
        ...     optimizer.step()
        ...     return mix.weights
        >>> captured = mixer.capture(step)
        >>> captured(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 9.0]))
        tensor([0.8000, 0.2000])
        """
        if not callable(step):
            raise EngramError(f"step must be a function of tensors, not {shown(step)}.")
        if self._scaler is not None and self._scaler.is_enabled():
            raise EngramError(
                "A step with a GradScaler cannot be captured: whether it is taken is decided on "
                "the host. Use bfloat16, which needs no scaler."
            )
        if ranks_of(self._process_group, self._rule) is not None:
            raise EngramError(
                "A step that several ranks take together cannot be captured: they compare on the "
                "host what they hold. Take it as it is."
            )
        parameters = optimized(self._optimizer)
        if has_parts(parameters):
            raise EngramError("A step over DTensors cannot be captured; take it as it is.")
        fixed = [group for group in self._optimizer.param_groups if not group.get("capturable", 1)]
        if fixed and any(parameter.is_cuda for parameter in parameters):
            kind = type(self._optimizer).__name__
            raise EngramError(f"{kind} needs capturable=True for its step to be captured.")
        return CapturedStep(step, self._optimizer, self._guard)

    def settle(self) -> None:
        """Raise if a step since the last check was void; on a GPU the host waits for the answer.

        For the end of a training run, and before the weights are saved: the last steps may not have
        been checked. On a CPU there is never anything to tell.
        """
        self._guard.settle()

    def __repr__(self) -> str:
        count = len(optimized(self._optimizer))
        rows = f", rows {[*self._rows]}" if self._rows else ""
        kind = type(self._optimizer).__name__
        return f"GradientMixer({kind} over {count} parameters, {self._rule}{rows})"

    def _check_name(self, row: Hashable) -> None:
        """Refuse a second reference row where the rule wants one."""
        if self._rule.reference != "pooled" or row == CURRENT:
            return
        for other in self._rows:
            if other != CURRENT:
                raise EngramError(
                    f"{type(self._rule).__name__} pools the memory in one row, which is {other!r} "
                    f"already, so {row!r} cannot be another one."
                )


@dataclass
class _Row:
    """The value and the gradient of one loss, over the parameters that there were."""

    value: Tensor
    parameters: Sequence[Tensor] = ()
    gradient: Gradient = ()

    def add_gradient(self, loss: Tensor, parameters: Sequence[Tensor]) -> None:
        """Add ``loss``'s gradient to the row.

        Autograd itself accumulates: it adds to the row's buffers where there are some and hands
        over its own where there are none, so a row costs no copy.
        """
        known = self.over(parameters) if self.gradient else None
        # FSDP2 may hold back the gradients of micro-batches until the last one of the row.
        self.gradient = differentiate(loss, parameters, known, whole=False)
        self.parameters = parameters

    def over(self, parameters: Sequence[Tensor]) -> Gradient:
        """Return the gradient over ``parameters``, 0 for those that are new."""
        if len(parameters) == len(self.parameters) and all(map(is_, parameters, self.parameters)):
            return self.gradient
        known = {id(each): g for each, g in zip(self.parameters, self.gradient, strict=True)}
        return [known.get(id(each)) for each in parameters]


def optimized(optimizer: Optimizer) -> list[Tensor]:
    """Return what an optimiser holds, each parameter once: it takes one twice with a warning."""
    held = [each for group in optimizer.param_groups for each in group["params"]]
    return [*dict(zip(map(id, held), held, strict=True)).values()]
