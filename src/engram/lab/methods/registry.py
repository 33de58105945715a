"""Methods by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engram.errors import EngramError, unknown
from engram.lab.methods.method import Method, MethodSettings, Setup
from engram.lab.settings import Scalar


@dataclass(frozen=True)
class Entry:
    """A method by name: how to build it, its settings, and the paper's values by benchmark."""

    name: str
    build: Callable[[Setup, Any], Method]
    settings: type[MethodSettings]
    presets: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    search: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)  # the tuning grid
    joint: bool = False  # trains on the shuffled union of all tasks
    numerics: int = 1  # raised when a change of the code changes the numbers
    varies: tuple[str, ...] = ()  # the numbers in which runs of one stack may differ


# The grid that the paper's baselines were tuned on.
LEARNING_RATES = {"learning_rate": (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4)}
_METHODS: dict[str, Entry] = {}


def register(entry: Entry) -> None:
    """Make a method known by its name; one that another module's method has is refused.

    Results are filed under the name, so two methods must not share it.
    """
    owner = _METHODS.get(entry.name, entry).build.__module__
    if owner != entry.build.__module__:
        raise EngramError(f"name must not be {entry.name!r}, which {owner} has registered.")
    _METHODS[entry.name] = entry


def names() -> list[str]:
    """Return the names of all methods."""
    return sorted(_METHODS)


def method_entry(name: str) -> Entry:
    """Return the method of that name, or an error that lists the valid ones."""
    if not isinstance(name, str) or name not in _METHODS:
        raise unknown("method", name, _METHODS)
    return _METHODS[name]
