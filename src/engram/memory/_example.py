"""What the memory tells of its examples, and what it can be asked about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from torch import Tensor

from engram.errors import EngramError, shown, unknown
from engram.memory._structure import Batch

Id: TypeAlias = int | str
Scalar: TypeAlias = str | int | float | bool | None
Tags: TypeAlias = Mapping[str, Scalar]


class Example(NamedTuple):
    """One example's metadata: all that ``erase(where=...)`` may ask about.

    >>> Example(id=7, task=0, label=3, tags={"customer": "x"}).label
    3
    """

    id: Id
    task: int | None
    label: int | None
    tags: Tags | None


class Sample(NamedTuple):
    """Examples as they were added, with tasks and labels [n] (None if they have none) and ids.

    >>> import torch
    >>> Sample(torch.zeros(1, 3), tasks=None, labels=torch.tensor([4]), ids=[7]).ids
    [7]
    """

    batch: Batch
    tasks: Tensor | None
    labels: Tensor | None
    ids: list[Id]


class Erasure(NamedTuple):
    """The record of one erasure: when (ISO 8601, UTC), which ids were asked for, and why.

    >>> Erasure(when="2024-01-01T00:00:00+00:00", ids=(7,), reason="withdrawn").ids
    (7,)
    """

    when: str
    ids: tuple[Id, ...]
    reason: str


Where: TypeAlias = Callable[[Example], bool] | Mapping[str, object]


def condition(where: Where) -> Callable[[Example], bool]:
    """Return the predicate that ``where`` stands for.

    A mapping asks for equality of every field it names: ``{"task": 3, "tags": {"customer": "x"}}``;
    its tags need only be among the example's.
    """
    if callable(where):
        return where
    if not isinstance(where, Mapping):
        raise EngramError(f"where is a {type(where).__name__}; give a function or a mapping.")
    if not where:
        raise EngramError("where is empty; name a field, such as {'task': 3}.")
    for field in where:
        if field not in Example._fields:
            raise unknown("field of an example", str(field), Example._fields)
    asked = {field: value for field, value in where.items() if field != "tags"}
    tags = where.get("tags", {})
    if not isinstance(tags, Mapping):
        raise EngramError(
            f"where['tags'] is {shown(tags)}; give a mapping, such as {{'source': 'a'}}."
        )
    wanted = tags.items()
    for field, value in (*asked.items(), *wanted):
        if not isinstance(value, Scalar | np.generic):  # an array is neither equal nor not
            raise EngramError(f"where[{field!r}] is {shown(value)}; give a number or a string.")

    def matches(example: Example) -> bool:
        held = example.tags or {}
        return all(getattr(example, field) == value for field, value in asked.items()) and all(
            name in held and held[name] == value for name, value in wanted
        )

    return matches
