"""Steps that are not finite: refused at once on a CPU, void on a GPU until it is asked."""

from __future__ import annotations

import cmath
import math
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from engram.errors import EngramError, shown
from engram.gradients._matrix import Gradient
from engram.rules import Rule

_MOST = 1024  # steps that are noted and not settled


def trouble_in(
    rule: Rule,
    names: Sequence[Hashable],
    losses: Sequence[float],
    gram: Sequence[Sequence[float]] | None,
) -> str | None:
    """Return which row has a number that the rule cannot weigh, and which; None if all are well."""
    least = 0.0 if rule.compares_losses else -math.inf
    for place, name in enumerate(names):
        loss = losses[place]
        if not math.isfinite(loss):
            return f"the row {shown(name)} has a loss of {loss}"
        if loss < least:
            return (
                f"the row {shown(name)} has a value of {loss:g}, and {type(rule).__name__} "
                "compares values of 0 or more"
            )
        if gram is not None and not math.isfinite(gram[place][place]):
            return f"the row {shown(name)} has a gradient of length {math.sqrt(gram[place][place])}"
    return None


def is_finite(gradient: Gradient) -> bool:
    """Tell whether a gradient is finite; a device is waited for."""
    parts = _dense(gradient)
    # A number that is not finite makes the sum so, which is the cheapest pass; large ones may, too.
    return all(
        cmath.isfinite(each.sum().item()) or bool(torch.isfinite(each).all()) for each in parts
    )


def flag(rule: Rule, losses: Tensor, weights: Tensor, gradient: Gradient | None) -> Tensor:
    """Return, as a number on the device, whether a step is one that `trouble_in` would refuse.

    A loss or a dot product that is not finite makes a rule's weights NaN. Where the rule has seen
    no dot products, ``gradient`` is what has been mixed.
    """
    measure = weights.sum()
    parts = [] if gradient is None else _dense(gradient)
    if parts:  # the largest element, which does not overflow as a square does
        measure = measure + get_total_norm(parts, math.inf).to(measure.device)
    bad = measure - measure != 0  # NaN is unlike anything
    return bad | (losses.amin() < 0) if rule.compares_losses else bad


def _dense(gradient: Gradient) -> list[Tensor]:
    reached = [each for each in gradient if each is not None]
    return [each._values() if each.layout is torch.sparse_coo else each for each in reached]


def refusal(told: str) -> EngramError:
    """Return the error for a step that is refused at once."""
    return EngramError(f"{told[0].upper()}{told[1:]}; the step is refused, and nothing is changed.")


class Noted(NamedTuple):
    """What a device knows of a step, and by which it is explained if it is ``bad``."""

    rule: Rule
    names: Sequence[Hashable]
    losses: Tensor
    gram: Tensor | None
    bad: Tensor

    def explain(self) -> str:
        """Return what is wrong with a bad step; the device is waited for."""
        gram = None if self.gram is None else self.gram.tolist()
        told = trouble_in(self.rule, self.names, self.losses.tolist(), gram)
        return told or f"the gradient of the rows {shown([*self.names])} is not finite"


class _Taken(NamedTuple):
    """What is put right when an optimiser has taken a step."""

    found_inf: Tensor | None  # that of a GradScaler, which takes it away itself
    fresh: list[Tensor]  # parameters that have no momentum yet
    before: list[tuple[Tensor, Tensor]]  # parameters, and what they were


class Guard:
    """Voids a device's steps that are not finite and tells of them later: no step waits for it.

    Once a step is bad, it and all after it leave the weights as they were, until `settle` reads one
    number back from the device and raises. An optimiser with ``fused=True`` skips such a step by
    itself. Any other takes it with gradients of 0, and then its weights are put back: averages that
    it keeps have shrunk, as they would have with such a gradient.

    Args:
        interval: after how many steps it is time to `settle`, 1024 at most, for each is remembered
            until then; 0 if nothing is to be checked.
    """

    def __init__(self, interval: int) -> None:
        if type(interval) is not int or interval < 0:
            raise EngramError(
                f"check_finite is {shown(interval)}; give a number of steps, or 0 for no check."
            )
        self._interval = min(interval, _MOST)
        self._begin()

    def _begin(self) -> None:
        self.valid: Tensor | None = None
        """Whether the step at hand counts, a truth on the device; None if it is on the host."""
        self.due = False
        """Whether it is time to `settle`."""
        self._optimizer: Optimizer | None = None
        self._hooks: list[RemovableHandle] = []
        self._steps = 0  # on a device, since the beginning
        self._noted: list[Noted] = []  # of them, those since it was last settled
        self._bad: Tensor | None = None  # a truth on the device, of this step or one before it
        self._found_inf: Tensor | None = None  # the same, as a number: so optimisers want it
        self._armed = False  # whether a mixture waits for its step
        self._taken: _Taken | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to one optimiser: a copy has another, and begins anew."""
        return {"_interval": self._interval}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._interval = state["_interval"]
        self._begin()

    def over(self, optimizer: Optimizer) -> Check:
        """Return how the next step of this optimiser is to be checked."""
        if not self._interval:
            return False
        if optimizer is not self._optimizer:
            if not hasattr(optimizer, "register_step_pre_hook"):
                return True  # nothing tells when it takes its step
            self._unhook()
            self._optimizer = optimizer
        self._armed, self.valid = False, None
        return self

    def note(self, step: Noted) -> None:
        """Take note of a step before the optimiser takes it."""
        bad = step.bad
        if self._bad is None or self._found_inf is None or self._bad.device != bad.device:
            self._bad = torch.zeros_like(bad)
            self._found_inf = torch.zeros_like(bad, dtype=torch.float32)
        # In place: a step that is replayed as a CUDA graph marks what `settle` reads.
        self._bad.logical_or_(bad)
        self._found_inf.copy_(self._bad)
        self._hook()
        self._armed, self.valid = True, ~self._bad
        if not (bad.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._steps += 1
            self._noted.append(step)
            self.due = self._steps % self._interval == 0

    def silence(self, parameters: Sequence[Tensor]) -> None:
        """Set a bad step's gradient to 0 for an optimiser that does not skip the step by itself."""
        assert self._bad is not None
        assert self._optimizer is not None
        if not _skips_by_itself(self._optimizer):
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.masked_fill_(self._bad.to(parameter.grad.device), 0)

    def settle(self) -> None:
        """Wait for the device, and raise if a step since the last time was void."""
        noted, self._noted, self.due = self._noted, [], False
        if self._bad is None or not self._bad.item():
            return
        self._bad.zero_()
        self._armed = False
        flags: list[bool] = torch.stack([each.bad for each in noted]).tolist() if noted else []
        if True not in flags:
            raise EngramError("A step that was captured is not finite; nothing was learnt since.")
        place = flags.index(True)
        first = self._steps - len(noted) + place + 1
        raise EngramError(
            f"In step {first}, {noted[place].explain()}; nothing was learnt from it, nor in any "
            f"step after it, up to {self._steps}."
        )

    def forget(self) -> None:
        """Drop what is not settled: the weights are others now."""
        self._noted, self._armed, self.due = [], False, False
        if self._bad is not None:
            self._bad.zero_()

    def _hook(self) -> None:
        """Have the optimiser call around its steps, for as long as this guard is there."""
        if self._hooks:
            return
        assert self._optimizer is not None
        mine = weakref.ref(self)

        def before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            guard = mine()
            if guard is not None:
                guard._before_step(optimizer, has_closure=len(args) > 1 or bool(kwargs))

        def after(optimizer: Optimizer, *_: object) -> None:
            guard = mine()
            if guard is not None:
                guard._after_step(optimizer)

        self._hooks = [
            self._optimizer.register_step_pre_hook(before),
            self._optimizer.register_step_post_hook(after),
        ]
        for hook in self._hooks:
            weakref.finalize(self, hook.remove)

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _before_step(self, optimizer: Optimizer, *, has_closure: bool) -> None:
        if self._found_inf is None or not (self._armed or has_closure):
            return
        if not self._armed:  # the closure may mix; until then there is nothing to skip
            self._found_inf.zero_()
        held = [each for group in optimizer.param_groups for each in group["params"]]
        if _skips_by_itself(optimizer):
            other = None if self._taken is not None else vars(optimizer).get("found_inf")
            fresh = [each for each in held if not optimizer.state.get(each)]
            self._taken = _Taken(other, fresh, [])
            mine = self._found_inf
            optimizer.found_inf = mine if other is None else torch.maximum(mine, other)  # type: ignore[attr-defined]
        else:
            trained = [each for each in held if each.requires_grad]
            self._taken = _Taken(None, [], [(each, each.detach().clone()) for each in trained])

    def _after_step(self, optimizer: Optimizer) -> None:
        taken, self._taken = self._taken, None
        if taken is None or self._bad is None:
            return
        bad = self._bad
        if _skips_by_itself(optimizer):
            if taken.found_inf is None:
                del optimizer.found_inf  # type: ignore[attr-defined]
            else:
                optimizer.found_inf = taken.found_inf  # type: ignore[attr-defined]
            for each in taken.fresh:  # SGD allocates momentum, and leaves it so in a skipped step
                momentum = optimizer.state.get(each, {}).get("momentum_buffer")
                if momentum is not None:
                    momentum.masked_fill_(bad.to(momentum.device), 0)
        elif self._armed:
            with torch.no_grad():
                for parameter, before in taken.before:
                    torch.where(bad.to(before.device), before, parameter, out=parameter)
        self._armed = False


Check: TypeAlias = Guard | bool
"""How a step is checked: never, at once (a device is waited for), or by a guard."""


def _skips_by_itself(optimizer: Optimizer) -> bool:
    """Tell whether an optimiser looks at ``found_inf``, as those with fused=True do."""
    fused = all(group.get("fused") for group in optimizer.param_groups)
    return fused and getattr(optimizer, "_step_supports_amp_scaling", False)
