"""What a study is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engram.settings import Scalar

if TYPE_CHECKING:
    from engram.protocol import Spec


@dataclass(frozen=True)
class Runs:
    """One entry of a study: methods on a benchmark, with the paper's values for all not given."""

    benchmark: str
    methods: tuple[str, ...]
    seeds: int = 5
    tasks: int | None = None
    examples: int | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    record_every: int = 0  # what every so many steps are made of is recorded; 0: of none
    specs: tuple[Spec, ...] = ()  # one for each method, once they have been checked


@dataclass(frozen=True)
class Study:
    """A set of runs that belong together."""

    name: str
    title: str
    runs: tuple[Runs, ...]
