"""What is left to compute, cut into the pieces that workers take."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engram.runs._address import address

if TYPE_CHECKING:
    from engram.protocol import Spec
    from engram.runs._laboratory import Laboratory
    from engram.runs._store import Store


@dataclass(frozen=True, eq=False)
class Unit:
    """Runs, each a spec and a seed, that one worker trains in one call."""

    runs: tuple[tuple[Spec, int], ...]
    record_every: int = 0  # what every so many steps are made of is recorded; 0: of none
    deterministic: bool = False  # whether a GPU is to have the same bits each time

    def part(self, start: int, stop: int) -> Unit:
        """Return the unit of some of its runs."""
        return replace(self, runs=self.runs[start:stop])

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The spec of each run."""
        return tuple(spec for spec, _ in self.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each run."""
        return tuple(seed for _, seed in self.runs)

    @property
    def name(self) -> str:
        """What a user knows it by."""
        method, count = self.specs[0].method, len(self.runs)
        if count == 1:
            return f"{method}, seed {self.seeds[0]}"
        alike = all(spec == self.specs[0] for spec in self.specs)
        return f"{method}, {count} {'seeds' if alike else 'runs'}"


def plan_units(
    specs: Sequence[Spec],
    seeds: Sequence[int],
    store: Store,
    laboratory: Laboratory,
    *,
    device: str,
    again: bool = False,
    record_every: int = 0,
    deterministic: bool = False,
) -> list[Unit]:
    """Return the units that the store has no results of: one per run, or as large as stacks are.

    A stack has several seeds, and several specs where those may differ in one. With ``again``
    everything is computed whatever the store has, with ``record_every`` what it has no step
    records of.
    """
    stacks: dict[Hashable, list[tuple[Spec, int]]] = {}
    for spec in specs:
        identity = spec.identity()
        missing = [
            (spec, seed)
            for seed in seeds
            if again or not _has(store, address(identity, seed), steps=record_every > 0)
        ]
        stacks.setdefault(laboratory.stack_key(spec), []).extend(missing)
    return [
        Unit(part, record_every, deterministic)
        for runs in stacks.values()
        if runs
        for part in _parts(runs, laboratory.stacking(runs[0][0], device)[0])
    ]


def _parts(runs: Sequence[tuple[Spec, int]], most: int) -> Iterator[tuple[tuple[Spec, int], ...]]:
    """Cut runs into as few parts as possible, none much larger than another.

    Without the first part the others stay as they are: a command that is given again finds them,
    and what was saved of them.
    """
    while runs:
        count = -(-len(runs) // most)
        size = -(-len(runs) // count)
        yield tuple(runs[:size])
        runs = runs[size:]


def _has(store: Store, address: str, *, steps: bool) -> bool:
    row = store.newest(address)
    return row is not None and (not steps or "recorded_steps" in row.outcome["facts"])
