"""What of a study is left to do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engram.app import runs
from engram.app.report import measure, value_text
from engram.app.studies.study import Runs, Study
from engram.errors import EngramError
from engram.lab.benchmarks import OTHER

if TYPE_CHECKING:
    from engram.lab.protocol import Spec

_SEARCHED = ("benchmark", "method", "network")  # what settings are chosen for


@dataclass(frozen=True)
class Planned:
    """One method in one setting: how many runs a study wants, and the units still missing.

    Where its data is not there, ``absent`` says so, and what to do about it. Where settings are
    searched, ``trials`` are the specs that its runs are of, or its runs are ``waiting`` for the
    search to have an end.
    """

    spec: Spec
    seeds: int
    record_every: int = 0
    units: tuple[runs.Unit, ...] = ()
    absent: str | None = None
    label: str = ""  # the settings that the study gives the method
    trials: tuple[Spec, ...] = ()
    waiting: bool = False

    @property
    def wanted(self) -> int:
        """How many runs there are to be in the end."""
        return self.seeds * max(len(self.trials), 1)

    @property
    def missing(self) -> int:
        """How many runs are to be made."""
        return self.wanted if self.waiting else sum(len(unit.seeds) for unit in self.units)


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
    every = _wanted(study, seeds, store)
    share = max(1, workers // max(len(every), 1)) if workers > 1 else 1
    rows = store.rows() if any(wanted.absent for wanted in every) else []
    return [
        _without_data(wanted, rows)
        if wanted.absent
        else wanted
        if wanted.waiting
        else replace(wanted, units=_units(wanted, store, device, share))
        for wanted in every
    ]


def search_result(
    trials: Sequence[Spec], names: Sequence[str], seeds: int, store: runs.Store, command: str
) -> runs.Choice | None:
    """Return what is chosen of some trials, which differ in the settings of these names.

    None as long as a run of any of them is missing, and where every one has a seed that diverged.
    """
    scored, devices = list[runs.Trial](), set[str]()
    for spec in trials:
        identity = spec.identity()
        found = [store.newest(runs.address(identity, seed)) for seed in range(seeds)]
        rows = [row for row in found if row is not None]
        if len(rows) < seeds:
            return None
        settings = {name: spec.settings[name] for name in names}
        values = tuple(measure(row, "average_accuracy") for row in rows)
        scored.append(runs.Trial(settings, values))
        devices |= {row.device for row in rows}
    if runs.select(scored) is None:
        return None
    common: dict[str, Any] = json.loads(runs.canonical(trials[0].identity()))
    held = {name: value for name, value in common["settings"].items() if name not in names}
    return runs.Choice(
        identity={**common, "settings": held},
        trials=tuple(scored),
        device=", ".join(sorted(devices)),
        **runs.stamp(command, gpu=devices != {"cpu"}),
    )


def keep_choice(choice: runs.Choice, store: runs.Store) -> None:
    """Store a choice, unless it is the last one of its kind and nothing has changed since."""
    ours = [choice.identity.get(name) for name in _SEARCHED]
    earlier = [
        (each.identity, each.trials)
        for each in store.choices()
        if [each.identity.get(name) for name in _SEARCHED] == ours
    ]
    if earlier[-1:] != [(choice.identity, choice.trials)]:
        store.add([choice])


def keep_choices(study: Study, store: runs.Store, command: str) -> None:
    """Store what the searches of a study have chosen, each once."""
    known = [(each.identity, each.trials) for each in store.choices()]
    for entry in study.runs:
        for trials in entry.trials:
            choice = None
            with suppress(EngramError):  # where its data is not here, there is nothing to keep
                choice = _chosen(entry, trials, store, command) if trials else None
            if choice and (choice.identity, choice.trials) not in known:
                store.add([choice])
                known.append((choice.identity, choice.trials))


def _chosen(
    entry: Runs, trials: Sequence[Spec], store: runs.Store, command: str = ""
) -> runs.Choice | None:
    names = [name for name in entry.search if name in trials[0].settings]
    return search_result(trials, names, entry.search_seeds, store, command)


def _wanted(study: Study, seeds: int | None, store: runs.Store) -> list[Planned]:
    wanted: dict[str, Planned] = {}
    for entry in study.runs:
        for place, spec in enumerate(entry.specs):
            trials = entry.trials[place] if entry.trials else ()
            new = Planned(spec, seeds or entry.seeds, entry.record_every, label=study.label(spec))
            try:
                key = runs.canonical(spec.identity())
                if trials:
                    search = Planned(trials[0], entry.search_seeds, label=new.label, trials=trials)
                    wanted.setdefault(f"search {key}", search)
                    choice = _chosen(entry, trials, store)
                    if choice is None:
                        new = replace(new, waiting=True)
                    else:
                        settings = {**spec.settings, **choice.chosen}
                        new = replace(new, spec=replace(spec, settings=settings))
            except EngramError as error:
                new = replace(new, absent=str(error))
            for each in [new, *_ablation(study, entry, new, seeds)]:
                if each.absent:
                    key = runs.canonical(each.spec.description())
                else:
                    key = f"{each.waiting} {runs.canonical(each.spec.identity())}"
                wanted[key] = _both(wanted[key], each) if key in wanted else each
    return list(wanted.values())


def _ablation(study: Study, entry: Runs, whole: Planned, seeds: int | None) -> Iterator[Planned]:
    """Yield what is run beside what was chosen or, while that is not known, beside the presets."""
    for name, spec in entry.ablation(whole.spec):
        label, text = study.label(spec), f"{name}={value_text(spec.settings[name])}"
        label = label if text in label.split() else f"{label} {text}".strip()
        yield replace(whole, spec=spec, seeds=seeds or entry.without_seeds, label=label)


def _units(wanted: Planned, store: runs.Store, device: str, workers: int) -> tuple[runs.Unit, ...]:
    units = runs.plan_units(
        wanted.trials or [wanted.spec],
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
