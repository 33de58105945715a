"""Which runs can train as one, and how many of them are to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from engram.errors import EngramError
from engram.methods import method_entry
from engram.protocol._spec import Spec
from engram.streams import benchmark

_MOST_EXAMPLES = 8_000_000  # of one task, those of all runs together: they lie on the GPU


def stacking(spec: Spec, device: str) -> tuple[int, str]:
    """Say up to how many runs of a spec are to train as one stack on a device, and why.

    They are runs of several seeds, or of several specs with one `stack_key`.
    """
    most = benchmark(spec.benchmark).stacks
    if most == 1 or torch.device(device).type != "cuda":
        return 1, f"a run of {spec.benchmark} keeps the device busy: runs go one by one"
    resident = max(1, _MOST_EXAMPLES // (spec.examples * spec.passes))
    if resident < most:
        return resident, "the examples of a task have to lie on the GPU for every run"
    return most, "a step leaves a GPU partly idle: runs side by side cost less than in a row"


def stack_key(spec: Spec) -> Hashable:
    """Return what the runs of one stack have in common: all but what the method lets differ."""
    return tuple(_compared(spec).items())


def one_each(spec: Spec | Sequence[Spec], seeds: Sequence[int]) -> list[Spec]:
    """Return the spec of every run, of which one may be given for all; refuse what cannot stack."""
    if isinstance(spec, Spec):
        return [spec] * len(seeds)
    specs = list(spec)
    if not specs or len(specs) != len(seeds):
        raise EngramError(
            f"spec must be one for all runs or one for each of the {len(seeds)} seeds, "
            f"not {len(specs)} specs."
        )
    first = _compared(specs[0])
    for other in map(_compared, specs[1:]):
        for name in {**first, **other}:
            if first.get(name) != other.get(name):
                varies = ", ".join(method_entry(specs[0].method).varies) or "their seeds"
                raise EngramError(
                    f"{name} must be the same in all runs of a stack, which may differ in {varies}."
                )
    return specs


def identities(specs: Sequence[Spec]) -> dict[str, Any]:
    """Return what a checkpoint tells of its runs: one identity for all, or one for each as well."""
    every = [spec.identity() for spec in specs]
    alike = all(one == every[0] for one in every)
    return {"identity": every[0], **({} if alike else {"identities": every})}


def _compared(spec: Spec) -> dict[str, Hashable]:
    varies = method_entry(spec.method).varies
    settings = {name: spec.settings[name] for name in sorted(spec.settings) if name not in varies}
    own = {name: value for name, value in vars(spec).items() if isinstance(value, int | str)}
    return {**own, **settings}
