"""Any optimiser and schedule of torch's in the place of plain SGD, for R stacked runs.

Plain SGD is no optimiser here: `engram.lab.engine.rows` forms the mixture of gradients and takes
the step in one product. Any other one is given the mixture as the gradient of each run's
parameters.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer, lr_scheduler

from engram.errors import EngramError, shown, unknown
from engram.lab.engine.rows import ByRun
from engram.lab.networks import Network

CONSTANT = "constant"
_UNSUITED = {
    "lbfgs": "it asks for the loss several times in a step",
    "sparseadam": "gradients are dense here",
}
_UNSUITED_SCHEDULES = {
    "reducelronplateau": "it waits for a measure that no step has",
    "lambdalr": "it takes a function",
    "multiplicativelr": "it takes a function",
    "sequentiallr": "it is made of other schedules",
    "chainedscheduler": "it is made of other schedules",
}
_PROBE = (2, 2)  # the shape of what arguments are tried on


class Chosen(Protocol):
    """The settings that say which optimiser and which schedule."""

    @property
    def optimizer(self) -> str:
        """The optimiser's name."""

    @property
    def optimizer_settings(self) -> str:
        """Its arguments, as text."""

    @property
    def schedule(self) -> str:
        """The schedule's name."""

    @property
    def schedule_settings(self) -> str:
        """Its arguments, as text."""

    @property
    def schedule_every(self) -> int:
        """Steps between two of the schedule's."""


def check(chosen: Chosen) -> None:
    """Refuse an optimiser or a schedule that is not there, or does not take its arguments."""
    parameters = [torch.zeros(_PROBE, requires_grad=True)]
    _made(chosen, [{"params": parameters, "lr": 0.1}])


class OptimizedRuns:
    """An optimiser of the parameters [R, d] of R runs, each a group with a rate of its own.

    It sees each run's parameters as the tensors that the network has, so one that goes by shapes is
    as in any other loop. Nothing of one run reaches another.
    """

    def __init__(
        self, network: Network, parameters: Tensor, chosen: Chosen, learning_rate: ByRun
    ) -> None:
        self._network, self._every, self._steps = network, chosen.schedule_every, 0
        self._tensors = [
            [each.detach().requires_grad_() for each in network.tensors(row)] for row in parameters
        ]
        rates = (
            learning_rate.flatten().tolist()
            if isinstance(learning_rate, Tensor)
            else [learning_rate] * len(parameters)
        )
        groups = [
            {"params": tensors, "lr": rate}
            for tensors, rate in zip(self._tensors, rates, strict=True)
        ]
        self._optimizer, self._schedule = _made(chosen, groups)

    def step(self, update: Tensor) -> None:
        """Take a step of every run, whose gradients are ``update`` [R, d]."""
        for tensors, row in zip(self._tensors, update, strict=True):
            for tensor, gradient in zip(tensors, self._network.tensors(row), strict=True):
                tensor.grad = gradient
        self._optimizer.step()
        for tensors in self._tensors:
            for tensor in tensors:
                tensor.grad = None  # it is a view of what is written anew
        self._steps += 1
        if self._schedule is not None and self._steps % self._every == 0:
            self._schedule.step()

    @property
    def nbytes(self) -> int:
        """Bytes that the optimiser holds, for one run."""
        tensors = (
            value
            for state in self._optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        )
        return sum(tensor.nbytes for tensor in tensors) // len(self._tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on."""
        state = self._optimizer.state_dict()
        return {
            "steps": self._steps,
            "state": {
                str(place): {
                    name: value.clone() if isinstance(value, Tensor) else value
                    for name, value in held.items()
                }
                for place, held in state["state"].items()
            },
            "groups": [_values(group) for group in state["param_groups"]],
            "schedule": None if self._schedule is None else _values(self._schedule.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        self._steps = state["steps"]
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict(
            {
                # Copies: torch would go on in the tensors that it is given.
                "state": {
                    int(place): copy.deepcopy(dict(held)) for place, held in state["state"].items()
                },
                "param_groups": [
                    {**saved, "params": group["params"]}
                    for saved, group in zip(state["groups"], groups, strict=True)
                ],
            }
        )
        if self._schedule is not None:
            self._schedule.load_state_dict(dict(state["schedule"]))


def canonical(text: str, name: str) -> str:
    """Return arguments in one way of writing them: sorted, as Python prints them, without spaces.

    >>> canonical("weight_decay=1e-2,betas=(0.9,0.99)", "optimizer_settings")
    'betas=(0.9,0.99),weight_decay=0.01'
    """
    given = _arguments(text, name)
    return ",".join(f"{key}={given[key]!r}".replace(", ", ",") for key in sorted(given))


def _arguments(text: str, name: str) -> dict[str, Any]:
    wrong = EngramError(
        f"{name} must be like weight_decay=0.01,betas=(0.9,0.99), not {shown(text)}."
    )
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise wrong
        values = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise wrong from None
    if any(key is None for key in values) or len(values) < len(call.keywords):
        raise wrong
    return {str(key): value for key, value in values.items()}


def _made(
    chosen: Chosen, groups: Sequence[dict[str, Any]]
) -> tuple[Optimizer, lr_scheduler.LRScheduler | None]:
    """Return the optimiser and the schedule of some groups of parameters."""
    kinds = _subclasses(torch.optim, Optimizer)
    optimizer: Optimizer = _called(
        "optimizer", chosen.optimizer, chosen.optimizer_settings, kinds, _UNSUITED, groups
    )
    if chosen.schedule == CONSTANT:
        if chosen.schedule_settings:
            raise EngramError("schedule_settings are those of a schedule, which must be given too.")
        return optimizer, None
    schedules = _subclasses(lr_scheduler, lr_scheduler.LRScheduler)
    schedule: lr_scheduler.LRScheduler = _called(
        "schedule",
        chosen.schedule,
        chosen.schedule_settings,
        schedules,
        _UNSUITED_SCHEDULES,
        optimizer,
    )
    return optimizer, schedule


def _called(
    kind: str,
    name: str,
    text: str,
    known: Mapping[str, Any],
    unsuited: Mapping[str, str],
    subject: object,
) -> Any:  # noqa: ANN401
    if name in unsuited:
        raise EngramError(f"{kind} must not be {name}, because {unsuited[name]}.")
    if name not in known:
        raise unknown(kind, name, known.keys() - unsuited.keys())
    arguments = _arguments(text, f"{kind}_settings")
    if "lr" in arguments:
        raise EngramError("The step size is the setting learning_rate, not lr.")
    try:
        return known[name](subject, **arguments)
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise EngramError(f"{kind} {name} does not take {text or 'that'}: {error}.") from error


def _subclasses(module: object, base: type) -> dict[str, Any]:
    """Return the classes of a module by their names in small letters."""
    return {
        name.lower(): each
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, base) and each is not base
        if not name.startswith("_")
    }


def _values(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers, texts and lists of a state, which is all that a checkpoint takes."""
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in held.items()
        if name != "params" and _can_be_saved(value)
    }


def _can_be_saved(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_can_be_saved, value))
    return value is None or isinstance(value, bool | int | float | str | Tensor)
