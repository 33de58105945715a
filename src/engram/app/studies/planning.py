"""What of a study is left to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engram.app import runs
from engram.app.studies.study import Study
from engram.errors import EngramError
from engram.lab.benchmarks import OTHER

if TYPE_CHECKING:
    from engram.lab.protocol import Spec


@dataclass(frozen=True)
class Planned:
    """One method in one setting: how many runs a study wants, and the units still missing.

    Where its data is not there, ``absent`` says so, and what to do about it.
    """

    spec: Spec
    seeds: int
    record_every: int = 0
    units: tuple[runs.Unit, ...] = ()
    absent: str | None = None

    @property
    def missing(self) -> int:
        """How many runs are to be made."""
        return sum(len(unit.seeds) for unit in self.units)


def plan(
    study: Study,
    store: runs.Store,
    *,
    device: str,
    seeds: int | None = None,
    workers: int = 1,
) -> list[Planned]:
    """Return what a study wants, each once, with the units that the store has no results of.

    ``seeds`` is how many runs of each, in place of what the study says. What several entries
    want is run once, with as many seeds and as many step records as any of them asks for. Stacks
    are so large that no more of the ``workers`` than need be are left without one.
    """
    every = _wanted(study, seeds)
    share = max(1, workers // max(len(every), 1)) if workers > 1 else 1
    rows = store.rows() if any(wanted.absent for wanted in every) else []
    return [
        _without_data(wanted, rows)
        if wanted.absent
        else replace(wanted, units=_units(wanted, store, device, share))
        for wanted in every
    ]


def _wanted(study: Study, seeds: int | None) -> list[Planned]:
    wanted: dict[str, Planned] = {}
    for entry in study.runs:
        for spec in entry.specs:
            absent = None
            try:
                key = runs.canonical(spec.identity())
            except EngramError as error:
                key, absent = runs.canonical(spec.description()), str(error)
            new = Planned(spec, seeds or entry.seeds, entry.record_every, absent=absent)
            wanted[key] = _both(wanted[key], new) if key in wanted else new
    return list(wanted.values())


def _units(wanted: Planned, store: runs.Store, device: str, workers: int) -> tuple[runs.Unit, ...]:
    units = runs.plan_units(
        [wanted.spec],
        range(wanted.seeds),
        store,
        device=device,
        record_every=wanted.record_every,
        workers=workers,
    )
    return tuple(units)


def _without_data(wanted: Planned, rows: Sequence[runs.Row]) -> Planned:
    """Let results that were made elsewhere do, on whatever version of the data it was.

    Those on data that is known not to be the paper's do not: whether it is the study's cannot be
    told without the study's.
    """
    described = json.loads(runs.canonical(wanted.spec.description()))
    held = {
        row.seed
        for row in rows
        if {name: row.identity[name] for name in row.identity if name != "data"} == described
        and not str(row.identity.get("data")).startswith(OTHER)
        and (not wanted.record_every or "recorded_steps" in row.outcome["facts"])
    }
    return replace(wanted, absent=None) if held >= set(range(wanted.seeds)) else wanted


def _both(one: Planned, other: Planned) -> Planned:
    records = [each.record_every for each in (one, other) if each.record_every]
    return replace(
        one, seeds=max(one.seeds, other.seeds), record_every=min(records) if records else 0
    )
