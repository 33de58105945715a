"""What is left to compute, cut into the pieces that workers take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engram.runs._address import address

if TYPE_CHECKING:
    from engram.protocol import Spec
    from engram.runs._laboratory import Laboratory
    from engram.runs._store import Store


@dataclass(frozen=True, eq=False)
class Unit:
    """Seeds of one spec that one worker trains in one call."""

    spec: Spec
    seeds: tuple[int, ...]
    record_every: int = 0  # what every so many steps are made of is recorded; 0: of none
    deterministic: bool = False  # whether a GPU is to have the same bits each time

    @property
    def name(self) -> str:
        """What a user knows it by."""
        if len(self.seeds) == 1:
            return f"{self.spec.method}, seed {self.seeds[0]}"
        return f"{self.spec.method}, {len(self.seeds)} seeds"


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
    """Return the units that the store has no results of: one per seed, or one stack per spec.

    With ``again`` everything is computed whatever the store has, with ``record_every`` what it
    has no step records of.
    """
    units = []
    for spec in specs:
        identity = spec.identity()
        missing = tuple(
            seed
            for seed in seeds
            if again or not _has(store, address(identity, seed), steps=record_every > 0)
        )
        if missing and laboratory.stacking(spec, device)[0]:
            units.append(Unit(spec, missing, record_every, deterministic))
        else:
            units.extend(Unit(spec, (seed,), record_every, deterministic) for seed in missing)
    return units


def _has(store: Store, address: str, *, steps: bool) -> bool:
    row = store.newest(address)
    return row is not None and (not steps or "recorded_steps" in row.outcome["facts"])
