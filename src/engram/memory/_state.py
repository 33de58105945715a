"""Books as arrays, which a ledger speaks, as tensors, which files and torch speak, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError
from engram.memory._columns import STORED_BITS, checked_tags, stored_identities
from engram.memory._example import Erasure, Id, Tags
from engram.memory._filing import Filing
from engram.memory._policies import Policy, positive
from engram.memory._table import NONE

State: TypeAlias = dict[str, Any]
Json: TypeAlias = Any


def to_bytes(document: object) -> NDArray[np.uint8]:
    """Return a JSON document as an array: there is no limit to its length in a file of tensors."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return np.frombuffer(bytearray(text.encode()), np.uint8)


def from_bytes(array: NDArray[np.uint8]) -> Json:
    """Return the document that `to_bytes` wrote."""
    return json.loads(array.tobytes().decode())


class UntrustedInput:
    """Says in one sentence what a state that is no memory's, or a damaged one, makes go wrong.

    It is no generator: one that Ctrl-C finds suspended would be closed by whoever collects it.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, EngramError):
            message = f"{type(error).__name__}: {error}"  # whoever made it, it may raise anything
            raise EngramError(f"The state is not a memory's, or is damaged ({message}).") from error


def save_filing(filing: Filing) -> State:
    """Return who sits where and in which group, in the order that decides who makes room."""
    slots = filing.slots
    rows, members = [], []
    for (task, label), group in filing.groups.items():
        rows.append((task, label, group.limit, group.seen, len(group.members)))
        members += [slots.slot_of[id] for id in group.members]
    tags = {slot: dict(own) for slot, own in enumerate(slots.tags) if own is not None}
    return {
        "max_examples": filing.max_examples,
        "sealed": slots.sealed,
        "tasks": slots.tasks.copy(),
        "labels": slots.labels.copy(),
        "ids": to_bytes(slots.ids),
        "tags": to_bytes(tags),
        "groups": np.array(rows, np.int64).reshape(-1, 5),
        "members": np.array(members, np.int64),
    }


def load_filing(policy: Policy, state: Mapping[str, Any]) -> Filing:
    """Return the filing that `save_filing` described, or refuse what none describes."""
    most, sealed = state["max_examples"], state["sealed"]
    if most is not None:
        positive("max_examples", most)
    filing = Filing(policy, most)
    slots, ids = filing.slots, stored_identities(from_bytes(state["ids"]))
    tasks, labels = (_column(state, name, len(ids)).tolist() for name in ("tasks", "labels"))
    _refuse_unless("ids", len(set(ids)) == len(ids) <= (filing.capacity or len(ids)))
    _refuse_unless("tasks", tasks.count(NONE) in (0, len(ids)))
    _refuse_unless("labels", labels.count(NONE) in ((0,) if policy.by_class else (0, len(ids))))
    _refuse_unless("sealed", type(sealed) is int and 0 <= sealed <= len(ids))
    _refuse_unless("sealed", not (sealed and policy.include_current))
    tags = _stored_tags(from_bytes(state["tags"]), len(ids))
    slots.expect(ids)
    for slot, (id, task, label) in enumerate(zip(ids, tasks, labels, strict=True)):
        slots.append((slot, id, task, label, tags.get(slot), 0.0))
    slots.settle(len(ids))
    slots.sealed = sealed
    _load_groups(filing, state)
    filing.journal.clear()
    return filing


def _load_groups(filing: Filing, state: Mapping[str, Any]) -> None:
    """Take in the groups, each example in the one that is its own."""
    ids, groups = filing.slots.ids, state["groups"]
    members = _column(state, "members", len(ids)).tolist()
    _refuse_unless("groups", groups.dtype == np.int64 and groups.shape[1:] == (5,))
    _refuse_unless("members", sorted(members) == [*range(len(ids))])
    start = 0
    for task, label, limit, seen, size in groups.tolist():
        own, key = members[start : start + max(size, 0)], (task, label)
        start += len(own)
        fits = len(own) == size <= min(limit, seen) and limit <= filing.groups.limit
        pooled = filing.policy.by_class or key == filing.key(task, label)
        _refuse_unless("groups", fits and pooled and key not in filing.groups.by_key)
        _refuse_unless("members", all(filing.key_at(slot) == key for slot in own))
        filing.groups.restore(key, limit, seen, [ids[slot] for slot in own])
    _refuse_unless("groups", start == len(ids))


def _stored_tags(tags: Json, count: int) -> dict[int, Tags]:
    _refuse_unless("tags", isinstance(tags, dict) and tags.keys() <= set(map(str, range(count))))
    return {int(slot): checked_tags(own) for slot, own in tags.items()}


def _column(state: Mapping[str, Any], name: str, count: int) -> NDArray[np.int64]:
    """Return an array of so many integers."""
    column = state[name]
    right = isinstance(column, np.ndarray) and column.dtype == np.int64
    _refuse_unless(name, right and column.shape == (count,))
    return column  # type: ignore[no-any-return]


def _refuse_unless(name: str, right: bool) -> None:
    if not right:
        raise EngramError(f"The state's {name} are not as a memory writes them.")


def load_next_id(number: object, ids: Iterable[Id]) -> int:
    """Return the number that the next example gets, which is behind all that were used."""
    taken = max([-1, *(id for id in ids if isinstance(id, int))])
    if type(number) is not int or number <= taken or number.bit_length() > STORED_BITS:
        raise EngramError("The state's next_id is not the number after the last one used.")
    return number


def load_erasures(records: Json) -> list[Erasure]:
    """Return the records of what was erased."""
    erasures = []
    for when, ids, reason in records:
        _refuse_unless("erasures", isinstance(when, str) and isinstance(reason, str))
        erasures.append(Erasure(when, tuple(stored_identities(ids)), reason))
    return erasures


def to_tensors(state: State) -> State:
    """Return the state with a tensor for every array."""
    return _map(
        state, lambda leaf: torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    )


def to_arrays(state: State) -> State:
    """Return the state with an array for every tensor."""
    return _map(state, lambda leaf: leaf.cpu().numpy() if isinstance(leaf, Tensor) else leaf)


def _map(state: State, convert: Callable[[Any], Any]) -> State:
    return {
        name: _map(value, convert) if isinstance(value, dict) else convert(value)
        for name, value in state.items()
    }
