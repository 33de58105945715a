"""Books as arrays, which a ledger speaks, as tensors, which files and torch speak, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError
from engram.memory._columns import identities
from engram.memory._filing import Filing
from engram.memory._policies import Policy

State: TypeAlias = dict[str, Any]
Json: TypeAlias = Any


def to_bytes(document: object) -> NDArray[np.uint8]:
    """Return a JSON document as an array: there is no limit to its length in a file of tensors."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return np.frombuffer(bytearray(text.encode()), np.uint8)


def from_bytes(array: NDArray[np.uint8]) -> Json:
    """Return the document that `to_bytes` wrote."""
    return json.loads(array.tobytes().decode())


@contextmanager
def trusting_nobody() -> Iterator[None]:
    """Tell in one sentence what a state that is no memory's, or a damaged one, makes go wrong."""
    try:
        yield
    except EngramError:
        raise
    except Exception as error:  # whoever made it, it may raise anything
        told = f"{type(error).__name__}: {error}"
        raise EngramError(f"The state is not a memory's, or is damaged ({told}).") from error


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
    """Return the filing that `save_filing` described."""
    filing = Filing(policy, state["max_examples"])
    slots = filing.slots
    tags = from_bytes(state["tags"])
    ids = identities(from_bytes(state["ids"]))
    sealed, seated = state["sealed"], sorted(state["members"].tolist())
    if seated != [*range(len(set(ids)))] or not 0 <= sealed <= len(ids):
        raise EngramError("The state's groups are not those of its examples.")
    slots.expect(ids)
    rows = zip(ids, state["tasks"].tolist(), state["labels"].tolist(), strict=True)
    for slot, (id, task, label) in enumerate(rows):
        slots.append((slot, id, task, label, tags.get(str(slot)), 0.0))
    slots.settle(len(ids))
    slots.sealed = sealed
    start = 0
    for task, label, limit, seen, size in state["groups"].tolist():
        members = state["members"][start : start + size].tolist()
        start += size
        filing.groups.restore((task, label), limit, seen, [slots.ids[slot] for slot in members])
    filing.journal.clear()
    return filing


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
