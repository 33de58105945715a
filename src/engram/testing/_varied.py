"""Runs that differ in a setting: each is to end as it does alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.methods import MethodSettings
from engram.testing._compare import close, require
from engram.testing._course import Subject


def varied(subject: Subject) -> None:
    """Run two values of a setting alone and as one stack, for all in which its runs may differ.

    The other value is one that makes a difference; where none does there is nothing to see.
    """
    usual = _alone(subject, subject.settings)
    for name in subject.entry.varies:
        for other in _others(subject, name):
            theirs = _alone(subject, other)
            weights = theirs[0]
            if bool(weights.isfinite().all()) and not close(usual, theirs):
                _compare(subject, name, [(subject.settings, usual), (other, theirs)])
                break


def _compare(subject: Subject, name: str, both: list[tuple[MethodSettings, list[Tensor]]]) -> None:
    course = subject.course((3, 3), each=[own for own, _ in both], dtype=torch.float64)
    together = course.finish().result()
    for run, (own, alone) in enumerate(both):
        require(
            close(alone, [part[run] for part in together]),
            f"gives a run with {name} {getattr(own, name):g} another result alone than stacked "
            "with a run of another value, which `varies` says it can be.",
        )


def _alone(subject: Subject, settings: MethodSettings) -> list[Tensor]:
    course = Subject(subject.entry, settings).course((3,), dtype=torch.float64)
    return [part[0] for part in course.finish().result()]


def _others(subject: Subject, name: str) -> Iterator[MethodSettings]:
    """Yield settings with other values, those of the tuning grid first, that are possible."""
    value = getattr(subject.settings, name)
    factors = (value * factor for factor in (0.1, 10, 0.01, 100, 1e3, 1e4))
    for other in (*subject.entry.search.get(name, ()), *factors, 0.0, 1.0, 1e3):
        changed: dict[str, Any] = {name: other}
        try:
            settings = replace(subject.settings, **changed)
        except EngramError:  # beyond its bounds
            continue
        yield settings
