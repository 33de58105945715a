"""The metadata of a batch as plain columns: one Python value for each example."""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from engram.errors import EngramError, shown
from engram.memory._example import Id, Tags
from engram.memory._table import NONE

_IDENTITIES = {int, str}
_BITS = 512
"""Of an integer for an id or a tag. JSON has no bound, but what reads and writes it has."""
STORED_BITS = _BITS + 1
"""Of an id in a state: numbers of ours may come after the largest that can be given."""

Values: TypeAlias = Any
"""Whatever a user may have given: checked before it is used."""


class Array(Protocol):
    """A tensor or an array: whatever turns itself into a list."""

    def tolist(self) -> Values:
        """Return the values as Python numbers."""


Integers: TypeAlias = Array | Sequence[int]
Ids: TypeAlias = Array | Iterable[Id]


class Incoming(NamedTuple):
    """A batch's metadata; ``ids`` is None where the memory is to number the examples itself."""

    tasks: list[int]
    labels: list[int]
    ids: list[Id] | None
    tags: list[Tags | None]


def incoming(
    tasks: int | Integers | None,
    labels: Integers | None,
    ids: Ids | None,
    tags: Tags | Sequence[Tags | None] | None,
    count: int | None,
) -> Incoming:
    """Return the columns, all of one length, or refuse what is not that."""
    own_labels = None if labels is None else integers("labels", labels, count)
    count = len(own_labels) if count is None and own_labels is not None else count
    own_ids = None if ids is None else _counted("ids", identities(ids), count)
    count = len(own_ids) if count is None and own_ids is not None else count
    own_tasks = _tasks(tasks, count)
    count = len(own_tasks)
    none: list[Any] = [None] * count
    own_tags = none if tags is None else _tags(tags, count)
    return Incoming(own_tasks, own_labels or [NONE] * count, own_ids, own_tags)


def identities(values: Ids, bits: int = _BITS) -> list[Id]:
    """Return the ids as Python integers and strings, or refuse what is neither."""
    column = None if isinstance(values, str) else _plain(values)
    if not isinstance(column, list):
        raise EngramError(f"ids is {shown(values)}; give a list with one id for each example.")
    if not _IDENTITIES.issuperset(map(type, column)):
        column = [_identity(value) for value in column]
    if any(type(value) is int and value.bit_length() > bits for value in column):
        raise EngramError(f"An id has more than {bits} bits; give smaller integers, or strings.")
    return column


def stored_identities(values: Values) -> list[Id]:
    """Return the ids of a state, or refuse what is no list of ids."""
    if not isinstance(values, list):
        raise EngramError("The state has ids that are no list.")
    return identities(values, STORED_BITS)


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
        told = f"{shown(min(column))} to {shown(max(column))}"
        raise EngramError(f"{name} must be integers of 64 bits; {told} are not.")
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


def _identity(value: object) -> Id:
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
                f"The tag {shown(name)}: {shown(value)} must be a string naming a string, a finite "
                f"number of at most {_BITS} bits, a truth value or None."
            )
    return dict(tags)
