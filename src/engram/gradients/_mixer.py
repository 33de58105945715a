"""The mixer: a rule inside any training loop."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from engram.errors import EngramError, shown
from engram.gradients._loss import check_loss, compared_value
from engram.gradients._mix import Mix, check_rule, mix_rows
from engram.gradients._parallel import average_rows
from engram.gradients._rows import Row, clear_gradients, optimized
from engram.rules import Rule

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from torch.distributed import ProcessGroup

_CURRENT = "current"


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
            group before the rule sees them, so that every rank takes the same step; call
            ``backward`` on losses of the bare module, or of a wrapped one under its ``no_sync()``.
        scaler: mixed precision. Gradients are scaled by it, and stay scaled for its ``step``; the
            rule and the ``Mix`` see none of it. An overflow is left in ``.grad`` for it to find.

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
        process_group: ProcessGroup | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        check_rule(rule)
        if not hasattr(optimizer, "param_groups"):
            raise EngramError(
                f"optimizer must be one of torch's, or hold param_groups as they do; "
                f"it is a {type(optimizer).__name__}."
            )
        self._optimizer = optimizer
        self._rule = rule
        self._process_group = process_group
        self._scaler = scaler
        self._rows: dict[Hashable, Row] = {}

    def backward(
        self, loss: Tensor, *, row: Hashable = _CURRENT, value: Tensor | float | None = None
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
        except TypeError:
            raise EngramError(f"row must be a name or a number, not {shown(row)}.") from None
        filled = Row(compared_value(loss, value))
        known = self._rows.get(row)
        if known is not None:
            filled = replace(known, value=known.value + filled.value)
        else:
            self._check_name(row)
        try:
            scaled = loss if self._scaler is None else self._scaler.scale(loss)
            filled.add_gradient(scaled, optimized(self._optimizer))
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
        names = sorted(rows, key=lambda name: name != _CURRENT)
        losses = [rows[name].value for name in names]
        gradients = [rows[name].over(trained) for name in names]
        if self._process_group is not None:
            average_rows(names, losses, gradients, trained, self._process_group)
        if _CURRENT not in rows:
            raise EngramError(
                f"mix() needs the row {_CURRENT!r}, and {names or 'nothing'} was given; call "
                "backward(loss) for the current batch first."
            )
        scale = None
        if self._scaler is not None:
            scale = self._scaler.scale(torch.ones_like(losses[0]))  # not read back to the host
        try:
            return mix_rows(self._rule, losses, gradients, trained, scale)
        except BaseException:
            clear_gradients(trained)  # an interruption may come when some of them are written
            raise

    def _check_name(self, row: Hashable) -> None:
        """Refuse a second reference row where the rule wants one."""
        if self._rule.reference != "pooled" or row == _CURRENT:
            return
        for other in self._rows:
            if other != _CURRENT:
                raise EngramError(
                    f"{type(self._rule).__name__} pools the memory in one row, which is {other!r} "
                    f"already, so {row!r} cannot be another one."
                )
