"""Numbers and rules in which the runs of a stack may differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.rules import Rule

ByRun: TypeAlias = float | Tensor
"""A number for all runs of a stack or, as a tensor [R, 1], one for each."""


def absorbed(tensor: Tensor, number: ByRun) -> tuple[Tensor, float]:
    """Return a tensor [R, ...] and a number for all runs, whose product is that of the two given.

    One number for each run goes into the tensor, and 1 is left.
    """
    if not isinstance(number, Tensor):
        return tensor, number
    return tensor * number.view(-1, *[1] * (tensor.dim() - 1)), 1.0


class RuleByRun(Rule):
    """Weighs the rows of every run, [R, rows], by a rule of its own; all rules are of one kind.

    Neighbours with equal rules are weighed together: a rule for each of k values costs k kernels.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.needs_gram, self.reference = rules[0].needs_gram, rules[0].reference
        self._rules = tuple(rules)
        self._parts = list[tuple[Rule, slice]]()
        start = 0
        for rule, alike in groupby(rules):
            end = start + len(list(alike))
            self._parts.append((rule, slice(start, end)))
            start = end

    def of(self, run: int) -> Rule:
        """Return the rule of one run."""
        return self._rules[run]

    def _check(self, losses: Tensor, gram: Tensor | None) -> None:
        super()._check(losses, gram)
        if losses.dim() != 2 or len(losses) != len(self._rules):
            raise EngramError(
                f"losses must have the shape [{len(self._rules)}, rows], a row for each run, "
                f"not {list(losses.shape)}."
            )

    def _weigh_and_mark(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        return self._weigh(losses, gram)

    def _weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        parts = [
            rule(losses[part], None if gram is None else gram[part]) for rule, part in self._parts
        ]
        return torch.cat(parts)
