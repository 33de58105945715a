"""One finished run: what was run, what came of it, and its receipts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engram.runs._address import address, canonical
from engram.runs._row_checks import check_row, fact_fault
from engram.runs._stamp import printable, stamp

if TYPE_CHECKING:
    from engram.protocol import Outcome, Spec


@dataclass(frozen=True)
class Row:
    """One finished run, as the store and a line of JSON hold it.

    ``outcome`` has the keys ``accuracy`` ([T][T] fractions, None = not seen yet), ``curve``
    ([T][at most 11]), ``facts`` and ``failure`` (a sentence if the run diverged, else None).
    """

    address: str
    seed: int
    identity: Mapping[str, Any]
    outcome: Mapping[str, Any]
    device: str
    seconds: float
    created: str  # UTC
    versions: Mapping[str, str]
    command: str

    @classmethod
    def of(cls, fields: object) -> Row:
        """Return the row of these fields; an EngramError says what is wrong with them."""
        return cls(**check_row(fields))

    @property
    def line(self) -> str:
        """The row as one canonical line of JSON."""
        return canonical(vars(self))

    @property
    def digest(self) -> str:
        """sha256 of the line: two rows are one if everything in them is equal."""
        return hashlib.sha256(self.line.encode()).hexdigest()


def record(spec: Spec, outcome: Outcome, command: str) -> Row:
    """Return the row of an outcome that was computed just now."""
    identity = json.loads(canonical(spec.identity()))
    return Row.of(
        {
            "address": address(identity, outcome.seed),
            "seed": outcome.seed,
            "identity": identity,
            "outcome": {
                "accuracy": outcome.accuracy,
                "curve": outcome.curve,
                "facts": {key: _usable(key, value) for key, value in outcome.facts.items()},
                "failure": None if outcome.failure is None else printable(outcome.failure),
            },
            "device": outcome.device,
            "seconds": outcome.seconds,
            **stamp(command),
        }
    )


def _usable(name: str, fact: float | str) -> float | str:
    # JSON has no NaN, reports have no room for 1e308, a text has one line: no fact is a reason to
    # lose a finished run.
    if isinstance(fact, str):
        fact = printable(fact)
    return fact if fact_fault(name, fact) is None else repr(fact)
