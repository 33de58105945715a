"""A ledger's books as arrays and JSON scalars, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engram.memory._filing import Filing
from engram.memory._policies import Policy

Json: TypeAlias = Any


def to_bytes(document: object) -> NDArray[np.uint8]:
    """Return a JSON document as an array: there is no limit to its length in a file of tensors."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return np.frombuffer(bytearray(text.encode()), np.uint8)


def from_bytes(array: NDArray[np.uint8]) -> Json:
    """Return the document that `to_bytes` wrote."""
    return json.loads(array.tobytes().decode())


def save(filing: Filing) -> dict[str, Any]:
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


def load(policy: Policy, state: Mapping[str, Any]) -> Filing:
    """Return the filing that `save` described."""
    filing = Filing(policy, state["max_examples"])
    slots = filing.slots
    tags = from_bytes(state["tags"])
    ids = from_bytes(state["ids"])
    slots.expect(ids)
    rows = zip(ids, state["tasks"].tolist(), state["labels"].tolist(), strict=True)
    for slot, (id, task, label) in enumerate(rows):
        slots.append(slot, id, task, label, tags.get(str(slot)))
    slots.settle(len(ids))
    slots.sealed = state["sealed"]
    start = 0
    for task, label, limit, seen, size in state["groups"].tolist():
        members = state["members"][start : start + size].tolist()
        start += size
        filing.groups.restore((task, label), limit, seen, [slots.ids[slot] for slot in members])
    return filing
