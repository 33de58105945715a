"""What a search on tuning tasks has chosen, and the score of every trial behind it."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engram.app.runs.checks import (
    check_created,
    check_identity,
    check_known,
    check_plain,
    check_settings,
    check_versions,
    typed,
    within,
)
from engram.app.runs.rows import canonical
from engram.errors import EngramError, shown
from engram.lab.settings import Scalar

CHOICE_FORMAT = "choice-2"  # distinguishes a line of JSON from a row, which has none
_BEST_MEAN = "choice-1"  # which chose the best mean, and of equal ones the first of the grid
_CHOICE = {
    "format": str,
    "identity": dict,
    "seeds": int,
    "chosen": dict,
    "score": float,
    "trials": list,
    "device": str,
    "created": str,
    "versions": dict,
    "command": str,
}
_TRIAL = {"settings": dict, "score": (int, float, type(None)), "values": list}


@dataclass(frozen=True)
class Trial:
    """One point of the grid, and its average accuracy in percent for each seed.

    None stands for a seed that diverged.
    """

    settings: Mapping[str, Scalar]
    values: tuple[float | None, ...]

    @property
    def score(self) -> float | None:
        """Mean over the seeds, or None where one of them diverged."""
        known = [value for value in self.values if value is not None]
        return statistics.fmean(known) if len(known) == len(self.values) else None

    @property
    def error(self) -> float | None:
        """Standard error of the score, s / √n, or None where there is no score or one seed."""
        known = [value for value in self.values if value is not None]
        if len(known) < max(len(self.values), 2):
            return None
        return statistics.stdev(known) / math.sqrt(len(known))


def select(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial that is chosen, or None where every one has a seed that diverged.

    It is the one with the best mean over the seeds or, where others are as good, the one of them
    with the smallest values. As good is what is behind the best by no more than one standard error
    of the difference, seed by seed.

    >>> select([Trial({"rate": 0.3}, (70.0, 74.0)), Trial({"rate": 0.1}, (71.0, 72.0))]).settings
    {'rate': 0.1}
    """
    scored = [(trial.score, trial) for trial in trials if trial.score is not None]
    if not scored:
        return None
    best = max(scored, key=lambda each: each[0])[1]
    return min((trial for _, trial in scored if _as_good(trial, best)), key=_size)


def _as_good(trial: Trial, best: Trial) -> bool:
    behind = [
        one - other
        for one, other in zip(best.values, trial.values, strict=True)
        if one is not None and other is not None
    ]
    error = statistics.stdev(behind) / math.sqrt(len(behind)) if len(behind) > 1 else 0.0
    return statistics.fmean(behind) <= error


def _size(trial: Trial) -> tuple[float, ...]:
    """Return the values by which trials are put in order; texts have none."""
    return tuple(value for value in trial.settings.values() if isinstance(value, int | float))


@dataclass(frozen=True)
class Choice:
    """What was chosen of some trials, as the store and a line of JSON hold it.

    ``identity`` is what all trials have in common: a row's, less the settings that were searched.
    """

    identity: Mapping[str, Any]
    trials: tuple[Trial, ...]
    device: str
    created: str  # UTC
    versions: Mapping[str, str]
    command: str
    format: str = CHOICE_FORMAT  # by which rule it was chosen

    @classmethod
    def of(cls, fields: object) -> Choice:
        """Return the choice of these fields; an EngramError says what is wrong with them."""
        given = _check_choice(fields)
        trials = (Trial(each["settings"], tuple(each["values"])) for each in given["trials"])
        names = ("identity", "device", "created", "versions", "command", "format")
        choice = cls(trials=tuple(trials), **{name: given[name] for name in names})
        if not choice.ranking:
            raise EngramError("A choice must have a trial without a seed that diverged.")
        for name, value in choice._derived().items():
            if given[name] != value:
                raise EngramError(f"{name} is not that of the trials.")
        return choice

    @property
    def ranking(self) -> list[Trial]:
        """The trials that have a score: the chosen one, then the others, the best first."""
        scored = [trial for trial in self.trials if trial.score is not None]
        ranked = sorted(scored, key=lambda trial: -(trial.score or 0))
        chosen = select(scored) if self.format != _BEST_MEAN else None
        return ranked if chosen is None else sorted(ranked, key=lambda each: each is not chosen)

    @property
    def chosen(self) -> Mapping[str, Scalar]:
        """The settings of the trial that was chosen."""
        return self.ranking[0].settings

    @property
    def seeds(self) -> int:
        """How many runs every trial had."""
        return len(self.trials[0].values)

    @property
    def line(self) -> str:
        """The choice as one canonical line of JSON."""
        return canonical(self.as_json())

    @property
    def digest(self) -> str:
        """sha256 of the line: two choices are one if everything in them is equal."""
        return hashlib.sha256(self.line.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return everything in it, and what follows from the trials."""
        return {**vars(self), **self._derived()}

    def _derived(self) -> dict[str, Any]:
        best = self.ranking[0]
        trials = [
            {"settings": dict(each.settings), "score": each.score, "values": list(each.values)}
            for each in self.trials
        ]
        chosen = dict(best.settings)
        return {"seeds": self.seeds, "chosen": chosen, "score": best.score, "trials": trials}


def _check_choice(fields: object) -> dict[str, Any]:
    """Return the fields of a choice if they are whole and sound; EngramError says what is wrong."""
    choice = typed("choice", fields, {"format": str})
    if choice["format"] not in (CHOICE_FORMAT, _BEST_MEAN):
        raise EngramError(f"format must be {CHOICE_FORMAT!r}, not {shown(choice['format'])}.")
    typed("choice", choice, _CHOICE)
    check_known("choice", choice, _CHOICE)
    check_plain(choice)
    if check_identity(choice["identity"]).get("split") != "tuning":
        raise EngramError("A choice must be made on tuning tasks.")
    check_created(choice["created"])
    check_versions(choice["versions"])
    if choice["seeds"] < 1:
        raise EngramError(f"seeds must be at least 1, not {choice['seeds']}.")
    for trial in choice["trials"]:
        _check_trial(trial, choice["seeds"])
    return choice


def _check_trial(fields: object, seeds: int) -> None:
    trial = typed("trial", fields, _TRIAL)
    check_known("trial", trial, _TRIAL)
    if len(trial["values"]) != seeds:
        raise EngramError(f"trial.values must have {seeds} entries, one for each seed.")
    for value in trial["values"]:
        if value is not None and not within(value, 100):
            raise EngramError(f"trial.values holds {shown(value)}, not a percentage.")
    check_settings("trial", trial["settings"])
