"""What is known of an example beside its tensors: id, task, label and tags.

Here are the records that a memory gives out, the questions it can be asked about its examples, and
the checks of what a user gives: one Python value for each example of a batch. And how such records
are kept among tensors.
"""

from __future__ import annotations

import json
import math
import operator
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, shown, unknown
from engram.memory.columns import Batch

NONE = int(np.iinfo(np.int64).min)
"""Stands in the columns of tasks and labels where an example has none."""

UNREAD = NONE + 20_011
"""Stands in the column of labels where the label is still to be read from a device."""

_ID_TYPES = {int, str}
_BITS = 512
"""Of an integer for an id or a tag. JSON has no bound, but what reads and writes it has."""
STORED_BITS = _BITS + 1
"""Of an id in a state: numbers of ours may come after the largest that can be given."""

Id: TypeAlias = int | str
Scalar: TypeAlias = str | int | float | bool | None
Tags: TypeAlias = Mapping[str, Scalar]
Values: TypeAlias = Any
"""Whatever a user may have given: checked before it is used."""


class Array(Protocol):
    """A tensor or an array: whatever turns itself into a list."""

    def tolist(self) -> Values:
        """Return the values as Python numbers."""


Integers: TypeAlias = Array | Sequence[int]
Numbers: TypeAlias = Array | Sequence[float]
Ids: TypeAlias = Array | Iterable[Id]


class Example(NamedTuple):
    """One example's metadata: all that ``erase(where=...)`` may ask about.

    >>> Example(id=7, task=0, label=3, tags={"customer": "x"}).label
    3
    """

    id: Id
    task: int | None
    label: int | None
    tags: Tags | None
    weight: float | None = None
    time: float | None = None


class Sample(NamedTuple):
    """Examples as they were added, with tasks and labels [n] (None if they have none) and ids.

    ``weights`` [n] are None where no example was given one; where some were, the others' are 1.

    >>> import torch
    >>> Sample(torch.zeros(1, 3), tasks=None, labels=torch.tensor([4]), ids=[7]).ids
    [7]
    """

    batch: Batch
    tasks: Tensor | None
    labels: Tensor | None
    ids: list[Id]
    weights: Tensor | None = None


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


class Metadata(NamedTuple):
    """A batch's metadata; ``ids`` is None where the memory is to number the examples itself."""

    tasks: list[int]
    labels: list[int]
    ids: list[Id] | None
    tags: list[Tags | None]
    measures: Mapping[str, list[float]] = MappingProxyType({})
    """Those of weights, times and sizes that there are."""
    described: NDArray[np.float32] | None = None
    """What a policy that looks at the examples says of each, [B, k]."""


def checked_metadata(
    tasks: int | Integers | None,
    labels: Integers | None,
    ids: Ids | None,
    tags: Tags | Sequence[Tags | None] | None,
    count: int | None,
    *,
    weights: Numbers | None = None,
    times: float | Numbers | None = None,
    sizes: list[int] | None = None,
    unread: bool = False,
) -> Metadata:
    """Return what a user gave as columns, all of one length, or refuse what is not that.

    There are labels that are `UNREAD` where it is said so.
    """
    own_labels = None if labels is None else integers("labels", labels, count)
    count = len(own_labels) if count is None and own_labels is not None else count
    own_ids = None if ids is None else _counted("ids", checked_ids(ids), count)
    count = len(own_ids) if count is None and own_ids is not None else count
    own_tasks = _tasks(tasks, count)
    count = len(own_tasks)
    none: list[Any] = [None] * count
    own_tags = none if tags is None else _tags(tags, count)
    own_labels = own_labels or [UNREAD if unread else NONE] * count
    known = Metadata(own_tasks, own_labels, own_ids, own_tags)
    if weights is None and times is None and sizes is None:
        return known
    measures: dict[str, list[float]] = {}
    if weights is not None:
        measures["weights"] = _numbers("weights", weights, count)
        if min(measures["weights"], default=1.0) <= 0:
            raise EngramError(
                f"weights has {shown(min(measures['weights']))}; each must be above 0."
            )
    if times is not None:
        given = [times] * count if isinstance(times, int | float) else times
        measures["times"] = _numbers("times", given, count)
    if sizes is not None:
        measures["sizes"] = [float(size) for size in sizes]
    return known._replace(measures=measures)


def checked_ids(values: Ids, bits: int = _BITS) -> list[Id]:
    """Return the ids as Python integers and strings, or refuse what is neither."""
    column = None if isinstance(values, str) else _plain(values)
    if not isinstance(column, list):
        raise EngramError(f"ids is {shown(values)}; give a list with one id for each example.")
    if not _ID_TYPES.issuperset(map(type, column)):
        column = [_checked_id(value) for value in column]
    if any(type(value) is int and value.bit_length() > bits for value in column):
        raise EngramError(f"An id has more than {bits} bits; give smaller integers, or strings.")
    return column


def stored_ids(values: Values) -> list[Id]:
    """Return the ids of a state, or refuse what is no list of ids."""
    if not isinstance(values, list):
        raise EngramError("The state has ids that are no list.")
    return checked_ids(values, STORED_BITS)


def integers(name: str, values: Integers, count: int | None) -> list[int]:
    """Return ``count`` integers, or refuse what is not that."""
    column = _plain(values)
    if not isinstance(column, list):
        raise EngramError(f"{name} is {shown(values)}; give one integer for each example.")
    try:
        own = array("q", column).tolist()
    except TypeError:
        own = None
    except OverflowError:  # at the first of them; others may be no integers
        own = [NONE] if all(hasattr(value, "__index__") for value in column) else None
    if own is None:
        raise EngramError(f"{name} must be one-dimensional and hold integers.")
    if NONE in own:
        extremes = f"{shown(min(column))} to {shown(max(column))}"
        raise EngramError(f"{name} must be integers of 64 bits; {extremes} are not.")
    return _counted(name, own, count)


def _numbers(name: str, values: Numbers, count: int) -> list[float]:
    """Return one finite number for each example, or refuse what is not that."""
    column = None if isinstance(values, str) else _plain(values)
    if not isinstance(column, list):
        raise EngramError(f"{name} is {shown(values)}; give one number for each example.")
    try:
        # Not float(), which reads texts as well.
        own = array("d", [False if isinstance(each, bool) else each for each in column]).tolist()
        wrong = any(isinstance(each, bool) for each in column) or not all(map(math.isfinite, own))
    except (TypeError, OverflowError):
        wrong = True
    if wrong:
        raise EngramError(f"{name} must be one-dimensional and hold finite numbers.")
    return _counted(name, own, count)


def _tasks(tasks: int | Integers | None, count: int | None) -> list[int]:
    """Return the task of each example; a single one is every example's."""
    if type(tasks) is int and count is not None and NONE < tasks < -NONE:
        return [tasks] * count
    own = tasks if tasks is None or isinstance(tasks, int) else _plain(tasks)
    if own is not None and not isinstance(own, int):
        return integers("tasks", own, count)
    if count is None:
        raise EngramError("Nothing tells how many examples there are; give count.")
    return [NONE] * count if own is None else integers("tasks", [own], 1) * count


def _tags(tags: Tags | Sequence[Tags | None], count: int) -> list[Tags | None]:
    """Return the tags of each example; a single mapping is every example's."""
    if isinstance(tags, Mapping):
        return [checked_tags(tags)] * count
    column = _plain(tags)
    if not isinstance(column, list):
        raise EngramError(f"The tags {shown(tags)} are not a mapping of names to values.")
    return _counted("tags", [None if own is None else checked_tags(own) for own in column], count)


def _plain(values: Values) -> Values:
    """Return the list behind an array or an iterable, and anything else as it is."""
    if isinstance(values, list):
        return values
    try:
        if hasattr(values, "tolist"):
            return values.tolist()
        return list(values) if isinstance(values, Iterable) else values
    except (TypeError, RuntimeError):  # a sparse tensor, one without values, no list after all
        return None


def _counted(name: str, column: list[Any], count: int | None) -> list[Any]:
    if count is not None and len(column) != count:
        raise EngramError(
            f"{name} has {len(column)} entries for a batch of {count}; give one for each example."
        )
    return column


def _checked_id(value: object) -> Id:
    if isinstance(value, str):
        return str(value)
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise EngramError(f"The id {shown(value)} is neither an integer nor a string.") from None


def checked_tags(tags: object) -> Tags:
    """Return a copy of the tags: JSON scalars by name, so that they can be saved as they are."""
    if not isinstance(tags, Mapping):
        raise EngramError(f"The tags {shown(tags)} are not a mapping of names to values.")
    for name, value in tags.items():
        fits = value is None or isinstance(value, str | int | float)
        if (
            not isinstance(name, str)
            or not fits
            or value in (math.inf, -math.inf)
            or value != value
            or (isinstance(value, int) and value.bit_length() > _BITS)
        ):
            raise EngramError(
                f"The tag {shown(name)} is {shown(value)}; a tag's name is a string, and its value "
                f"a string, a finite number of at most {_BITS} bits, a truth value or None."
            )
    return dict(tags)


def to_bytes(document: object) -> NDArray[np.uint8]:
    """Return a JSON document as an array: there is no limit to its length in a file of tensors."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return np.frombuffer(bytearray(text.encode()), np.uint8)


def from_bytes(array: NDArray[np.uint8]) -> Any:  # noqa: ANN401  # JSON
    """Return the document that `to_bytes` wrote."""
    return json.loads(array.tobytes().decode())
