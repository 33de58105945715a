"""The values that ``engram tune`` has chosen, for ``engram run --tuned``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from engram import runs
from engram.cli._choices import command, origin, values_text
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.protocol import Spec


class Chosen:
    """The choices of a store, for runs on a benchmark by the name that the user gave it."""

    def __init__(self, benchmark: str, store: Path, laboratory: runs.Laboratory) -> None:
        self._benchmark, self._store, self._laboratory = benchmark, store, laboratory
        self._choices: list[runs.Choice] = []
        if store.is_file():
            with runs.Store(store, read_only=True) as opened:
                self._choices = opened.choices()

    def texts(self, spec: Spec, given: Mapping[str, str]) -> dict[str, str]:
        """Return what was chosen for a spec's method, as ``--set`` takes it; say so on stderr.

        It is the newest choice of those with as many examples in a task, or else of all. Nothing
        is chosen for a method that has nothing to search or is given all of it.
        """
        if not self._laboratory.tuned_settings(spec).keys() - given.keys():
            return {}
        mine = [choice for choice in self._choices if _is_for(choice, spec)]
        if not mine:
            raise self._nothing(spec, given)
        alike = [choice for choice in mine if choice.identity["examples"] == spec.examples]
        newest = (alike or mine)[-1]
        _tell(spec.method, newest, len(mine), fewer=0 < len(alike) < len(mine))
        return {name: str(value) for name, value in newest.chosen.items()}

    def _nothing(self, spec: Spec, given: Mapping[str, str]) -> EngramError:
        # What cannot be tuned at all says so itself.
        self._laboratory.tuning_specs(self._benchmark, spec.method, overrides=given)
        told = command(["engram", "tune", self._benchmark, spec.method], self._store)
        return EngramError(
            f"Nothing is chosen for {spec.method} on {self._benchmark} in {str(self._store)!r}: "
            f"`{told}` does it."
        )


def _is_for(choice: runs.Choice, spec: Spec) -> bool:
    names = choice.identity["benchmark"], choice.identity["method"]
    return names == (spec.benchmark, spec.method)


def _tell(method: str, chosen: runs.Choice, choices: int, *, fewer: bool) -> None:
    among = "chosen"
    if choices > 1:
        alike = " with as many examples" if fewer else ""
        among = f"of {choices} choices the newest{alike}, made"
    print(
        f"{method}: {values_text(chosen.chosen)}, {among} on {chosen.created[:10]} "
        f"from {len(chosen.trials)} trials of {origin(chosen)}.",
        file=sys.stderr,
    )
