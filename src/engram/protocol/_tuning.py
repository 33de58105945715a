"""Choosing settings on the tuning tasks, which no training task is among."""

from __future__ import annotations

from itertools import product

from engram.errors import EngramError
from engram.methods import method_entry
from engram.protocol._spec import Spec, specify
from engram.settings import Scalar


def tuning_specs(
    benchmark: str, method: str, *, tasks: int | None = None, examples: int | None = None
) -> list[Spec]:
    """Return the grid over a method's declared search space, on the tuning tasks alone."""
    search = method_entry(method).search
    specify(benchmark, method)  # an unknown benchmark is told before anything else
    if not search:
        raise EngramError(f"{method} declares no settings to tune.")
    return [
        specify(
            benchmark,
            method,
            tasks=tasks,
            examples=examples,
            overrides={name: str(value) for name, value in zip(search, values, strict=True)},
            split="tuning",
        )
        for values in product(*search.values())
    ]


def tuned_settings(spec: Spec) -> dict[str, Scalar]:
    """Return the values that the search varies, as a spec of the grid has them."""
    return {name: spec.settings[name] for name in method_entry(spec.method).search}
