"""Which examples stay. A policy is a value: one at work is a `Ledger`."""

from __future__ import annotations

import dataclasses
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, shown, unknown
from engram.plugins import Registry

Described: TypeAlias = NDArray[np.float32]
"""What a policy that looks at the examples says of each of a batch, [B, k]."""

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


class Policy(ABC):
    """Which examples stay: the base of ours and of yours.

    A policy is a frozen dataclass whose fields are numbers, strings, truth values or None. It is
    saved with a memory under the name of its class (one of your own with its module's), and found
    again if that class is imported then.

    >>> class Recent(Fifo):
    ...     '''The last ones, under another name.'''
    >>> Recent(100).group_limit
    100
    """

    by_class: ClassVar[bool]
    """Whether each (task, class) is a group of its own, or all examples are one."""
    uniform: ClassVar[bool]
    """Whether a group is a uniform sample of all that came to it, or the last ones."""

    @property
    @abstractmethod
    def include_current(self) -> bool:
        """Whether examples may be sampled at once, or only when their task has ended."""

    @property
    @abstractmethod
    def group_limit(self) -> int:
        """The most examples that one group may hold."""


class Selective(Policy):
    """A policy that looks at the examples: the base of those that choose by what is in them.

    When an example comes it is described by a few numbers, which are kept with it and saved with
    the memory. Where a group is full, the policy is shown the descriptions of its members and, as
    the last one, of the candidate, and says which of them leaves. With the same descriptions and
    the same chance it must say the same.

    >>> @dataclass(frozen=True)
    ... class Bright(Selective):
    ...     '''The brightest of each class.'''
    ...     per_class: int
    ...     by_class = include_current = True
    ...     group_limit = property(lambda self: self.per_class)
    ...     def describe(self, batch):
    ...         return batch[0].float().flatten(1).mean(1, keepdim=True)
    ...     def leaving(self, described, chance):
    ...         return described[:, 0].argmin()
    >>> import torch
    >>> from engram.memory import Memory
    >>> memory = Memory(Bright(2))
    >>> images = torch.tensor([[0.2], [0.9], [0.1], [0.5]])
    >>> memory.add((images, torch.tensor([3, 3, 3, 3])))
    >>> sorted(memory.sample(2).ids)
    [1, 3]
    """

    uniform: ClassVar[bool] = False

    @abstractmethod
    def describe(self, batch: Any) -> Tensor:  # noqa: ANN401 (whatever was added)
        """Return what is to be known of each example, [B, k], floats.

        ``batch`` is what was given to `Memory.add`; in benchmark runs the pair of the inputs, as
        the network sees them, and the labels.
        """

    @abstractmethod
    def leaving(self, described: Described, chance: float) -> int:
        """Return which of the examples [n, k] leaves, the last one being the candidate.

        In a memory that is full before a group is, a group is asked for one of its members alone.
        ``chance`` is a uniform draw from [0, 1).
        """


def describe(policy: Selective, batch: Any, count: int) -> Described:  # noqa: ANN401 (nested)
    """Return what a policy says of a batch of so many examples, on the host."""
    found = policy.describe(batch)
    name = f"{type(policy).__name__}.describe"
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != count:
        given = list(found.shape) if isinstance(found, Tensor) else shown(found)
        raise EngramError(
            f"{name} must return a tensor [{count}, k] for {count} examples, not {given}."
        )
    described: Described = found.detach().to("cpu", torch.float32).numpy()
    if not np.isfinite(described).all():
        raise EngramError(f"{name} returned a value that is not finite.")
    return described


@dataclass(frozen=True)
class _PerClass(Policy):
    """A place for ``per_class`` examples of each (task, class); all classes stay, old and new."""

    per_class: int
    include_current: bool = field(default=False, kw_only=True)
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("per_class", self.per_class)
        if not isinstance(self.include_current, bool):
            given = shown(self.include_current)
            raise EngramError(f"include_current is {given}; it must be True or False.")

    @property
    def group_limit(self) -> int:
        """The most examples that one (task, class) may hold."""
        return self.per_class


@dataclass(frozen=True)
class _Pooled(Policy):
    """One pool of ``capacity`` examples, sampled from at once: no tasks, no labels needed."""

    capacity: int
    by_class: ClassVar[bool] = False
    include_current = True

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


_OURS = {policy.__name__: policy for policy in (ClassRing, ClassSample, Reservoir, Fifo)}


def _check_class(name: str, value: object) -> type[Policy]:
    if not (isinstance(value, type) and issubclass(value, Policy)):
        raise EngramError(f"The policy {shown(name)} must be a class that extends Policy.")
    if not dataclasses.is_dataclass(value):
        raise EngramError(f"The policy {value.__name__} must be a frozen dataclass.")
    return value


POLICIES: Registry[type[Policy]] = Registry("policies", "policy", _check_class)


def register(name: str, policy: type[Policy]) -> None:
    """Make a policy known by a name, for ``--set memory=NAME``: a class that extends `Policy`."""
    POLICIES.add(name, policy, module=getattr(policy, "__module__", ""))


register("ring", ClassRing)
register("sample", ClassSample)
register("reservoir", Reservoir)
register("fifo", Fifo)


def policy_named(text: str, **given: int) -> Policy:
    """Return the policy of a name, with what is given where it has such a field.

    Its other fields may be set behind commas.

    >>> policy_named("ring", per_class=5, capacity=100)
    ClassRing(per_class=5, include_current=False)
    >>> policy_named("ring,include_current=true", per_class=5)
    ClassRing(per_class=5, include_current=True)
    """
    name, *parts = text.split(",")
    kind: Any = POLICIES.find(name)
    if kind is None:
        raise unknown("value of memory", name, POLICIES.names())
    hints = get_type_hints(kind)
    known = [item.name for item in dataclasses.fields(kind) if item.init]
    values: dict[str, Any] = {name: number for name, number in given.items() if name in known}
    for part in parts:
        field, equals, value = part.partition("=")
        if field not in known or field in given:
            raise unknown(f"field of the policy {name!r}", field, set(known) - given.keys())
        values[field] = _parsed(f"{name},{field}", value if equals else "", hints[field])
    missing = dataclasses.MISSING
    for item in dataclasses.fields(kind):
        needed = item.init and item.default is missing and item.default_factory is missing
        if needed and item.name not in values:
            raise EngramError(
                f"The policy {name!r} needs {item.name}: memory={name},{item.name}=…."
            )
    made: Policy = kind(**values)
    check_policy(made)
    return made


def _parsed(name: str, text: str, kind: Any) -> Any:  # noqa: ANN401
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    with suppress(ValueError):
        if kind in (int, float):
            return kind(text)
    if kind is str and text:
        return text
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a text")
    raise EngramError(f"{name} must be {wanted}, not {shown(text)}.")


def check_policy(policy: object) -> None:
    """Refuse what is no policy, and one that a saved memory could not be loaded with."""
    if not isinstance(policy, Policy):
        raise EngramError(f"policy is {policy!r}; give one such as Reservoir(1000).")
    if type(policy) in _OURS.values():
        return
    for flag in ("by_class", "uniform"):
        if not isinstance(getattr(policy, flag, None), bool):
            raise EngramError(f"{type(policy).__name__} must have {flag}, True or False.")
    try:
        settings = json.loads(json.dumps(policy_to_json(policy)))
        del settings["name"]
        found = policy == type(policy)(**settings)
        positive("group_limit", policy.group_limit)
        for flag in ("by_class", "uniform", "include_current"):
            getattr(policy, flag)
    except EngramError:
        raise
    except Exception:  # whatever a class of somebody else's does
        found = False
    if not found:
        raise EngramError(
            f"A memory with the policy {shown(policy)} could not be loaded again; make its class "
            "a frozen dataclass whose fields are numbers, strings, truth values or None."
        )


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """Return the policy's name and numbers."""
    own: Any = policy  # a dataclass
    return {"name": _name(type(policy)), **dataclasses.asdict(own)}


def policy_from_json(document: Mapping[str, Any]) -> Policy:
    """Return the policy that `policy_to_json` described, of a class that is imported already."""
    settings = dict(document)
    name = settings.pop("name")
    found = [each for each in _subclasses(Policy) if _name(each) == name]
    if not found:
        raise EngramError(
            f"The memory's policy is {name}, which is none of Engram's and not imported; import "
            "the module that defines it, then load the memory."
        )
    policy: Policy = found[-1](**settings)  # of two that have one name, the later
    return policy


def policy_in_words(document: Mapping[str, Any]) -> str:
    """Return what `policy_to_json` described in words."""
    settings = dict(document)
    name = settings.pop("name")
    return f"{name}({', '.join(f'{field}={value!r}' for field, value in settings.items())})"


def _name(kind: type[Policy]) -> str:
    ours = _OURS.get(kind.__name__) is kind
    return kind.__name__ if ours else f"{kind.__module__}.{kind.__qualname__}"


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        if each not in (_PerClass, _Pooled):
            yield each
        yield from _subclasses(each)
