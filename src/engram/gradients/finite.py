"""Steps that are not finite: refused at once on a CPU, void on a GPU until it is asked."""

from __future__ import annotations

import cmath
import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from engram.errors import EngramError, shown
from engram.gradients.gram import Gradient
from engram.gradients.sharded import has_parts, own_part
from engram.rules import Rule

_MOST = 1024  # steps that are recorded and not settled


def find_problem(
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
    """Tell whether a gradient is finite; a device is waited for, once."""
    return begin_check(gradient)()


def begin_check(gradient: Gradient) -> Callable[[], bool]:
    """Let a GPU look whether a gradient is finite; what is returned waits for it, and tells."""
    parts = [each for each in gradient if each is not None]
    if parts and all(each.is_cuda and each.layout is torch.strided for each in parts):
        largest = get_total_norm([each for each in parts if each.numel()], math.inf)
        return lambda: math.isfinite(largest.item())
    # A number that is not finite makes the sum so, which is the cheapest pass; large ones may, too:
    # times 0 they are 0.
    return lambda: all(
        cmath.isfinite(each.sum().item()) or cmath.isfinite(each.mul(0).sum().item())
        for each in parts
    )


def is_bad_step(rule: Rule, losses: Tensor, weights: Tensor, gradient: Gradient | None) -> Tensor:
    """Return, as a number on the device, whether a step is one that `find_problem` would refuse.

    A loss or a dot product that is not finite makes a rule's weights NaN. Where the rule has seen
    no dot products, ``gradient`` is what has been mixed.
    """
    # Times 0 everything finite is 0, and nothing else is: a sum of such marks loses none of them.
    least = losses.clamp(max=0) if rule.compares_losses else torch.zeros_like(losses)
    marks = torch.add(least, weights, alpha=0)
    parts = [each for each in gradient or () if each is not None]
    dense = [each for each in parts if each.layout is torch.strided and each.numel()]
    if dense:  # the largest element, which does not overflow as a square does
        marks = torch.add(marks, get_total_norm(dense, math.inf).to(marks.device), alpha=0)
    for each in parts:
        if each.layout is not torch.strided:  # of an embedding: 0, or NaN if it is not finite
            marks = marks + each.mul(0).sum().to(marks.device)
    return marks.any()


def refusal(reason: str) -> EngramError:
    """Return the error for a step that is refused at once."""
    return EngramError(
        f"{reason[0].upper()}{reason[1:]}; the step is refused, and nothing is changed."
    )


class PendingStep(NamedTuple):
    """A device's step of which the host does not know yet whether it is ``bad``."""

    rule: Rule
    names: Sequence[Hashable]
    losses: Tensor
    gram: Tensor | None
    bad: Tensor
    beside: tuple[Tensor, str] | None = None  # what may make it bad as well, and a sentence of it

    def explain(self) -> str:
        """Return what is wrong with a bad step; the device is waited for."""
        gram = None if self.gram is None else self.gram.tolist()
        found = find_problem(self.rule, self.names, self.losses.tolist(), gram)
        if found is None and self.beside is not None and not self.bad.item():
            return self.beside[1]
        return found or f"the gradient of the rows {shown([*self.names])} is not finite"


class _BeforeStep(NamedTuple):
    """What was there before an optimiser's step, and may have to be put back after it."""

    found_inf: Tensor | None  # that of a GradScaler, which takes it away itself
    without_state: list[Tensor]  # parameters that are to have momentum and have none yet
    weights: list[tuple[Tensor, Tensor]]  # parameters, and what they were


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
        self.due = False
        """Whether it is time to `settle`."""
        self._optimizer: Optimizer | None = None
        self._hooks: list[RemovableHandle] = []
        self._steps = 0  # on a device, since the beginning
        self._replays = 0  # of steps that were captured
        self._pending: list[PendingStep] = []  # of them, those since it was last settled
        # On the device, 1 from a bad step on, else 0: a number, for so optimisers want it.
        self._found_inf: Tensor | None = None
        self._awaited: Tensor | None = None  # what an optimiser reads whose closure is to mix
        self._mixed = False  # whether there is a mixture of which the step is not taken
        self._before: _BeforeStep | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to one optimiser: a copy has another, and begins anew."""
        return {"_interval": self._interval}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._interval = state["_interval"]
        self._begin()

    @property
    def valid(self) -> Tensor | None:
        """Whether the step at hand counts, a truth on the device; None if it is on the host."""
        return self._found_inf == 0 if self._mixed and self._found_inf is not None else None

    def check_for(self, optimizer: Optimizer) -> Check:
        """Return how the next step of this optimiser is to be checked."""
        if not self._interval:
            return False
        self._mixed = False
        if optimizer is not self._optimizer:
            if not hasattr(optimizer, "register_step_pre_hook"):
                return True  # nothing tells when it takes its step
            self._unhook()
            self._optimizer = optimizer
        return self

    def flag_on(self, device: torch.device) -> Tensor:
        """Return the number that a bad step makes 1, for a kernel that finds one."""
        if self._found_inf is None or self._found_inf.device != device:
            self._found_inf = torch.zeros((), dtype=torch.float32, device=device)
        return self._found_inf

    def record(self, step: PendingStep, *, flagged: bool = False) -> None:
        """Keep a step, before the optimiser takes it, until it is settled.

        With ``flagged`` the number of `flag_on` has been made 1 already where the step is bad.
        """
        bad = step.bad
        if not flagged:
            # In place: a step that is replayed as a CUDA graph marks what `settle` reads.
            self.flag_on(bad.device).logical_or_(bad)
        if self._awaited is not None and self._found_inf is not None:
            self._awaited.copy_(self._found_inf)
        self._hook()
        self._mixed = True
        if not (bad.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._steps += 1
            self._pending.append(step)
            self.due = self._steps % self._interval == 0

    def record_beside(self, bad: Tensor, sentence: str) -> None:
        """Let something else make the recorded step bad, before the optimiser takes it."""
        assert self._found_inf is not None
        bad = bad.to(self._found_inf.device)
        self._found_inf.logical_or_(bad)
        if self._awaited is not None:
            self._awaited.copy_(self._found_inf)
        self._pending[-1] = self._pending[-1]._replace(beside=(bad, sentence))

    def replayed(self) -> bool:
        """Count a step that was captured, and tell whether it is time to `settle`."""
        self._replays += 1
        return self._interval > 0 and self._replays % self._interval == 0

    def zero_if_bad(self, parameters: Sequence[Tensor]) -> None:
        """Set a bad step's gradient to 0 for an optimiser that does not skip the step by itself."""
        assert self._found_inf is not None
        assert self._optimizer is not None
        if _skips_by_itself(self._optimizer):
            return
        found = self._found_inf.bool()
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            gradient = own_part(gradient)
            bad = found.to(gradient.device)
            if gradient.layout is torch.strided:
                gradient.masked_fill_(bad, 0)
            else:  # an embedding's takes no mask; it is sorted for this, which a GPU waits for
                counts = (~bad).to(gradient.dtype)
                parameter.grad = gradient.mul(counts).nan_to_num()

    def settle(self) -> None:
        """Wait for the device, and raise if a step since the last time was void."""
        pending, self._pending, self.due = self._pending, [], False
        if self._found_inf is None or not self._found_inf.item():
            return
        self._found_inf.zero_()
        self._mixed = False
        found = [e.bad if e.beside is None else e.bad.logical_or(e.beside[0]) for e in pending]
        bad: list[bool] = torch.stack(found).tolist() if found else []
        if True not in bad:
            raise EngramError("A step that was captured is not finite; nothing was learnt since.")
        place = bad.index(True)
        first = self._steps - len(pending) + place + 1
        raise EngramError(
            f"In step {first}, {pending[place].explain()}; nothing was learnt from it, nor in any "
            f"step after it, up to {self._steps}."
        )

    def reset(self) -> None:
        """Drop what is not settled: the weights are others now."""
        self._pending, self._mixed, self.due = [], False, False
        if self._found_inf is not None:
            self._found_inf.zero_()

    def _hook(self) -> None:
        """Have the optimiser call around its steps, for as long as this guard is there."""
        if self._hooks:
            return
        assert self._optimizer is not None
        reference = weakref.ref(self)

        def before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            guard = reference()
            if guard is not None:
                guard._before_step(optimizer, has_closure=len(args) > 1 or bool(kwargs))

        def after(optimizer: Optimizer, *_: object) -> None:
            guard = reference()
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
        if self._found_inf is None or not (self._mixed or has_closure):
            return
        own = self._found_inf
        if not self._mixed:  # the closure may mix; until then there is nothing to skip
            own = self._awaited = torch.zeros_like(own)
        held = [each for group in optimizer.param_groups for each in group["params"]]
        if _skips_by_itself(optimizer):
            # Where the last step broke off, the one that is there is ours.
            other = None if self._before is not None else vars(optimizer).get("found_inf")
            momentum = any(group.get("momentum") for group in optimizer.param_groups)
            without_state = [e for e in held if momentum and not optimizer.state.get(e)]
            self._before = _BeforeStep(other, without_state, [])
            optimizer.found_inf = own if other is None else torch.maximum(own, other)  # type: ignore[attr-defined]
        else:
            trained = [own_part(each.detach()) for each in held if each.requires_grad]
            weights = [(each, each.clone()) for each in trained]
            self._before = _BeforeStep(None, [], weights)

    def _after_step(self, optimizer: Optimizer) -> None:
        before, found = self._before, self._found_inf
        self._before = self._awaited = None
        if before is None or found is None:
            return
        if _skips_by_itself(optimizer):
            if before.found_inf is None:
                del optimizer.found_inf  # type: ignore[attr-defined]
            else:
                optimizer.found_inf = before.found_inf  # type: ignore[attr-defined]
            for each in before.without_state:
                # SGD allocates its momentum even in a step that it skips, and leaves it unfilled.
                momentum = optimizer.state.get(each, {}).get("momentum_buffer")
                if momentum is not None:
                    momentum.masked_fill_(found.to(momentum.device, torch.bool), 0)
        elif self._mixed:
            bad = found.bool()
            with torch.no_grad():
                for parameter, value in before.weights:
                    torch.where(bad.to(value.device), value, parameter, out=parameter)
        self._mixed = False


Check: TypeAlias = Guard | bool
"""How a step is checked: never, at once (a device is waited for), or by a guard."""


def _skips_by_itself(optimizer: Optimizer) -> bool:
    """Tell whether an optimiser looks at ``found_inf``, as those with fused=True do."""
    fused = all(group.get("fused") for group in optimizer.param_groups)
    if not fused or not getattr(optimizer, "_step_supports_amp_scaling", False):
        return False
    # With DTensors a fused step has no place for a number that is not one of them.
    return not any(has_parts(group["params"]) for group in optimizer.param_groups)
