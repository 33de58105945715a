"""Which examples stay. A policy is a value: the books of one at work are a `Ledger`."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from engram.errors import EngramError, shown

_MOST = 2**63  # what an integer of an array can hold is less


def positive(name: str, value: object) -> None:
    """Refuse a ``value`` that is not a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < _MOST:
        wanted = "a whole number of at least 1 and below 2^63"
        raise EngramError(f"{name} is {shown(value)}; it must be {wanted}.")


def natural(name: str, value: object) -> int:
    """Return a number such as 5 or numpy's 5, or refuse what is not a whole one of at least 0."""
    number = -1 if isinstance(value, bool) else value
    with suppress(TypeError):
        number = operator.index(number)  # type: ignore[arg-type]
    if not isinstance(number, int) or number < 0:
        raise EngramError(f"{name} is {shown(value)}; it must be a whole number of at least 0.")
    return number


@dataclass(frozen=True)
class _PerClass:
    """A place for ``per_class`` examples of each (task, class); all classes stay, old and new."""

    per_class: int
    include_current: bool = field(default=False, kw_only=True)
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("per_class", self.per_class)
        if not isinstance(self.include_current, bool):
            told = shown(self.include_current)
            raise EngramError(f"include_current is {told}; it must be True or False.")

    @property
    def group_limit(self) -> int:
        """The most examples that one (task, class) may hold."""
        return self.per_class


@dataclass(frozen=True)
class _Pooled:
    """One pool of ``capacity`` examples, sampled from at once: no tasks, no labels needed."""

    capacity: int
    by_class: ClassVar[bool] = False
    include_current: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("capacity", self.capacity)

    @property
    def group_limit(self) -> int:
        """The most examples that the pool may hold."""
        return self.capacity


class ClassRing(_PerClass):
    """The last ``per_class`` examples of each (task, class): a ring buffer for each.

    A task's examples can be sampled once it has ended, or at once with ``include_current``.

    >>> ClassRing(25)
    ClassRing(per_class=25, include_current=False)
    """

    uniform: ClassVar[bool] = False


class ClassSample(_PerClass):
    """A uniform sample of ``per_class`` examples of each (task, class).

    Reservoir sampling within each group: nothing but the sample is ever held, and when the task
    ends each of a class's n examples is in it with probability min(1, per_class / n).

    >>> ClassSample(5, include_current=True)
    ClassSample(per_class=5, include_current=True)
    """

    uniform: ClassVar[bool] = True


class Reservoir(_Pooled):
    """A uniform sample of ``capacity`` examples of everything seen so far.

    After n examples each is held with probability min(1, capacity / n); no task boundaries needed.

    >>> Reservoir(1000)
    Reservoir(capacity=1000)
    """

    uniform: ClassVar[bool] = True


class Fifo(_Pooled):
    """The last ``capacity`` examples: Algorithm 1 of the paper as printed.

    The current task is included at once, and the oldest example is dropped when the memory is full.

    >>> Fifo(1000)
    Fifo(capacity=1000)
    """

    uniform: ClassVar[bool] = False


Policy: TypeAlias = ClassRing | ClassSample | Reservoir | Fifo
_POLICIES = {policy.__name__: policy for policy in (ClassRing, ClassSample, Reservoir, Fifo)}


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """Return the policy's name and numbers."""
    return {"name": type(policy).__name__, **dataclasses.asdict(policy)}


def policy_from_json(document: Mapping[str, Any]) -> Policy:
    """Return the policy that `policy_to_json` described."""
    settings = dict(document)
    policy: Policy = _POLICIES[settings.pop("name")](**settings)
    return policy
