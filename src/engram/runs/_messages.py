"""What a worker has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from engram.protocol import Outcome, Progress


class Advanced(NamedTuple):
    """How far a worker is."""

    progress: Progress


class Told(NamedTuple):
    """A line for the user."""

    line: str


class Finished(NamedTuple):
    """A worker's results."""

    outcomes: list[Outcome]


class Stopped(NamedTuple):
    """A worker has saved its unit, as it was asked to."""


class Failed(NamedTuple):
    """A worker's error, in one sentence."""

    reason: str


class TooLarge(NamedTuple):
    """A GPU has too little memory for a unit: what it said, in one sentence."""

    reason: str


class Died(NamedTuple):
    """What became of a worker's process, in one sentence."""

    reason: str


Message: TypeAlias = Advanced | Told | Finished | Stopped | Failed | TooLarge | Died
