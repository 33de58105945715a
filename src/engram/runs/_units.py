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
) -> list[Unit]:
    """Return the units that the store has no results of: one per seed, or one stack per spec.

    With ``again`` everything is computed whatever the store has.
    """
    units = []
    for spec in specs:
        identity = spec.identity()
        missing = tuple(
            seed for seed in seeds if again or store.newest(address(identity, seed)) is None
        )
        if missing and laboratory.stacking(spec, device)[0]:
            units.append(Unit(spec, missing))
        else:
            units.extend(Unit(spec, (seed,)) for seed in missing)
    return units
