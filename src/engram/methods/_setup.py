"""What a method is built from: settings, networks and a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from engram.engine import ByRun, RuleByRun
from engram.models import Network
from engram.rules import Rule
from engram.settings import Settings, setting
from engram.streams import Stream


@dataclass(frozen=True)
class MethodSettings(Settings):
    """What every method can be told."""

    learning_rate: float = setting(0.1, "step size of plain SGD, constant", above=0)
    batch_size: int = setting(10, "examples of the current task in a step", least=1)


class Setup(NamedTuple):
    """What a method is built from: R networks in one, and the shape of the stream to come.

    Runs may differ in the settings that the method's `Entry` says they may. It asks for those
    here: the settings that it is built with are the first run's.
    """

    network: Network
    parameters: Tensor  # [R, d], updated in place
    seeds: Sequence[int]
    stream: Stream
    each: Sequence[Any] = ()  # every run's settings, where they differ

    def number(self, settings: Any, name: str) -> ByRun:  # noqa: ANN401 (each has its own)
        """Return a setting: a number or, where runs differ in it, a tensor [R, 1]."""
        values = [getattr(one, name) for one in self.each or (settings,)]
        if len(set(values)) == 1:
            number: float = values[0]
            return number
        return self.parameters.new_tensor(values).unsqueeze(1)

    def rule(self, settings: Any, make: Callable[[Any], Rule]) -> Rule:  # noqa: ANN401
        """Return the rule that is made of the settings, or of each run's where those differ."""
        if len(set(self.each)) <= 1:
            return make(settings)
        made = {one: make(one) for one in self.each}  # runs with the same settings share one
        rules = [made[one] for one in self.each]
        return rules[0] if all(rule == rules[0] for rule in rules) else RuleByRun(rules)
