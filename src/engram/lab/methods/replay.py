"""The methods that mix gradients: one implementation, a rule and a memory each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engram.errors import EngramError
from engram.gradients import Mix
from engram.lab.benchmarks import Examples
from engram.lab.engine import Bank, Batch
from engram.lab.methods.method import FinishedTask, Method, MethodSettings, Setup
from engram.lab.settings import Scalar, setting
from engram.memory import Ledger, Policy
from engram.memory.policies import policy_named
from engram.rules import Rule


def _check_memory(text: str) -> None:
    """Refuse what names no policy, or has fields that it has not."""
    policy_named(text, per_class=1, capacity=1)


@dataclass(frozen=True)
class ReplaySettings(MethodSettings):
    """Settings of every method with an episodic memory."""

    reference_batch: int = setting(256, "examples of the memory in a step", least=1)
    memory_per_class: int = setting(25, "examples kept of each class of each task", least=1)
    memory: str = setting(
        "ring",
        "ring, sample: of finished tasks alone, as in the paper's runs; "
        "reservoir, fifo: the current task included (fifo is Algorithm 1 as printed); "
        "or a policy of a plugin's",
        check=_check_memory,
        plugins="policies",
    )
    max_age: int = setting(
        0,
        "tasks after which the memory lets an example go: of this many finished tasks, the newest, "
        "some are kept; 0: of all",
        least=0,
        later=True,
    )


PRESETS: dict[str, dict[str, Scalar]] = {
    "split-cifar": {"learning_rate": 0.03, "memory_per_class": 13},
    "split-cub": {
        "learning_rate": 0.03,
        "memory_per_class": 5,
        "reference_batch": 128,
        "memory": "sample",
    },
    "split-awa": {
        "learning_rate": 0.01,
        "memory_per_class": 20,
        "reference_batch": 128,
        "memory": "sample",
    },
}
"""The paper's settings of every method with an episodic memory; MNIST's are the defaults."""


def with_presets(more: Mapping[str, Mapping[str, Scalar]]) -> dict[str, Mapping[str, Scalar]]:
    """Return the presets with a method's own beside them."""
    return {name: {**PRESETS.get(name, {}), **more.get(name, {})} for name in {**PRESETS, **more}}


def boundless(settings: ReplaySettings) -> bool:
    """Whether the memory takes examples as they come, whatever task they are of."""
    return settings.memory in ("reservoir", "fifo") and not settings.max_age


class Replay(Method):
    """Steps along ``rule``'s mixture of the current batch's gradient and the memory's."""

    draws: int = 1
    """How many reference batches a step reads, independent of one another."""
    settings: ReplaySettings
    rule: Rule

    def __init__(self, setup: Setup, settings: ReplaySettings, rule: Rule) -> None:
        super().__init__(setup, settings)
        self.rule = rule
        # On a CPU GEM's solver looks whether it is done; on a GPU it takes all of its rounds.
        self.capturable = rule.reference == "pooled" or self.parameters.is_cuda
        self.stream = stream = setup.stream
        # However much is allowed, there is nothing to keep beyond the stream's examples.
        per_task = min(settings.memory_per_class * stream.classes_per_task, stream.examples)
        capacity = per_task * stream.tasks
        policy = policy_named(
            settings.memory, per_class=settings.memory_per_class, capacity=capacity
        )
        _check_policy(policy, settings, capacity)
        ledgers = [
            Ledger(policy, seed=seed, max_age=settings.max_age or None) for seed in setup.seeds
        ]
        device, dtype = self.parameters.device, self.parameters.dtype
        self.bank = Bank(ledgers, setup.seeds, capacity, stream, device, dtype)

    def stage_examples(self, examples: Examples) -> Examples:
        """Put the examples into the memory's table, where its plan finds those that will stay."""
        return self.bank.stage_examples(examples)

    def begin_task(self, task: int, labels: Tensor) -> None:
        """Plan what the task's steps will read from the memory, and what it will keep."""
        if self.settings.max_age:
            self.bank.grow_old(task)
        self.bank.plan(
            task,
            labels,
            self.settings.batch_size,
            self.settings.reference_batch,
            per_task=self.rule.reference == "per task",
            sampled=self.rule.draws_by_task,
            draws=self.draws,
        )

    @property
    def pads(self) -> bool:
        """Whether some steps, or some runs, read fewer examples than others."""
        padded = self.bank.planned is not None and self.bank.planned.pads
        return padded or self.rule.reference == "per task"

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take the step; what is to be remembered of the batch was staged there."""
        reference = self.bank.reference(step)
        return self.rows.step(self.rule, self.learning_rate, batch, reference)

    def drawn(self, step: int, *names: str) -> list[tuple[Batch, list[Tensor]]]:
        """Return each draw of a step as a batch, with these columns of it; none where it is empty.

        The columns are what `stage_examples` put beside inputs and labels.
        """
        found = self.bank.read(step, "inputs", "labels", *names)
        if found is None:
            return []
        read, weights, groups = found
        shares = [None] * groups if weights is None else weights.chunk(groups, 1)
        parts = zip(*(column.chunk(groups, 1) for column in read), strict=True)
        return [
            (self.stream.batch(inputs, labels)._replace(weights=share), more)
            for (inputs, labels, *more), share in zip(parts, shares, strict=True)
        ]

    def kind(self, step: int) -> Hashable:
        """Return whether a step reads anything from the memory."""
        return self.bank.planned.kind(step) if self.bank.planned else None

    def locate(self, position: Tensor | None) -> None:
        """Let the memory's plan be read at the device's step."""
        if self.bank.planned:
            self.bank.planned.position = position

    def end_task(self, task: int, finished: FinishedTask) -> None:  # noqa: ARG002
        """Let the tasks that follow read what this one left."""
        self.bank.end_task()

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on, the memory included."""
        return super().state_dict() | {"bank": self.bank.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.bank.load_state_dict(state["bank"])

    def facts(self) -> dict[str, int]:
        """Return what the method holds, for one run."""
        return super().facts() | {"memory_bytes": self.bank.nbytes}


def _check_policy(policy: Policy, settings: ReplaySettings, capacity: int) -> None:
    """Refuse a policy that may hold more than `memory_per_class` allows."""
    if policy.by_class:
        held, allowed = policy.group_limit, settings.memory_per_class
        what = "of each class of each task"
    else:
        held, allowed, what = policy.group_limit, capacity, "in all"
    if held > allowed:
        raise EngramError(
            f"The policy {settings.memory!r} holds {held} examples {what}, and memory_per_class "
            f"allows {allowed}."
        )
