"""Which runs can train as one, and how many of them are to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields
from typing import Any

import torch

from engram.errors import EngramError, shown
from engram.lab.benchmarks import benchmark, check_each_seed
from engram.lab.methods import method_entry
from engram.lab.protocol.spec import Spec

_MOST_EXAMPLES = 2_500_000  # of a task, in all runs of a stack: two gigabytes of MNIST's


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
    check_each_seed(seeds)
    if isinstance(spec, Spec):
        return [spec] * len(seeds)
    if not isinstance(spec, list | tuple) or not all(isinstance(each, Spec) for each in spec):
        raise EngramError(f"spec must be a Spec, or a list of them, not {shown(spec)}.")
    if len(spec) != len(seeds):
        raise EngramError(
            f"spec must be one for all runs or one for each of the {len(seeds)} seeds, "
            f"not {len(spec)} specs."
        )
    first = _compared(spec[0])
    for other in map(_compared, spec[1:]):
        for kind, name in {**first, **other}:
            if first.get((kind, name)) != other.get((kind, name)):
                varies = ", ".join(method_entry(spec[0].method).varies) or "their seeds"
                raise EngramError(
                    f"{name} must be the same in all runs of a stack, which may differ in {varies}."
                )
    return list(spec)


def differences(specs: Sequence[Spec], run: int) -> str:
    """Return a run's learning rate, and the other settings in which the runs of a stack differ."""
    names = dict.fromkeys(("learning_rate", *method_entry(specs[0].method).varies))
    settings = specs[run].settings
    return ", ".join(
        f"{name} {settings[name]:g}"
        for name in names
        if name == "learning_rate" or any(settings[name] != spec.settings[name] for spec in specs)
    )


def identities(specs: Sequence[Spec]) -> dict[str, Any]:
    """Return what a checkpoint tells of its runs: one identity for all, or one for each as well."""
    every = [spec.identity() for spec in specs]
    alike = all(one == every[0] for one in every)
    return {"identity": every[0], **({} if alike else {"identities": every})}


def _compared(spec: Spec) -> dict[tuple[str, str], Hashable]:
    """Return all that must not differ, by whose it is (a setting may be called like a field)."""
    own = [item.name for item in fields(spec) if item.name != "settings"]
    varies = method_entry(spec.method).varies
    settings = [name for name in sorted(spec.settings) if name not in varies]
    return {
        **{("spec", name): getattr(spec, name) for name in own},
        **{("settings", name): spec.settings[name] for name in settings},
    }
