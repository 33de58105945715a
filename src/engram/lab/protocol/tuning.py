"""Choosing settings on the tuning tasks, which no training task is among."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from torch import nn

from engram.errors import EngramError
from engram.lab.methods import method_entry
from engram.lab.networks import NetworkSource
from engram.lab.protocol.spec import Spec, specify
from engram.lab.settings import Scalar


def tuning_specs(
    benchmark: str,
    method: str,
    *,
    tasks: int | None = None,
    examples: int | None = None,
    passes: int = 1,
    overrides: Mapping[str, str] | None = None,
    network: str | Callable[..., nn.Module] | NetworkSource | None = None,
    network_arguments: Mapping[str, str | Scalar] | None = None,
) -> list[Spec]:
    """Return the grid over a method's declared search space, on the tuning tasks alone.

    What is overridden is the same in every trial, and is searched no more.
    """
    specify(benchmark, method, overrides=overrides)  # a mistake is reported before anything else
    given = dict(overrides or {})
    declared = method_entry(method).search
    search = {name: values for name, values in declared.items() if name not in given}
    if not declared:
        raise EngramError(f"{method} declares no settings to tune.")
    if not search:
        raise EngramError(f"settings must leave one of {', '.join(declared)} to the search.")
    return [
        specify(
            benchmark,
            method,
            tasks=tasks,
            examples=examples,
            overrides=given
            | {name: str(value) for name, value in zip(search, values, strict=True)},
            split="tuning",
            passes=passes,
            network=network,
            network_arguments=network_arguments,
        )
        for values in product(*search.values())
    ]


def tuned_settings(spec: Spec) -> dict[str, Scalar]:
    """Return the settings that a search for a spec's method chooses, as this spec has them."""
    return {name: spec.settings[name] for name in method_entry(spec.method).search}
