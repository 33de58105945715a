"""Where a result belongs: an address made of what was run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def address(identity: Mapping[str, Any], seed: int) -> str:
    """Return the content address of a run: sha256 of its identity and seed, in hexadecimal.

    The identity is the spec, the data's checksum and the method's numerics version: not the
    commit, the device or anything else that leaves the numbers what they are.

    >>> address({"method": "van", "tasks": 2}, 0) == address({"tasks": 2, "method": "van"}, 0)
    True
    >>> address({"method": "van", "tasks": 2}, 0) == address({"method": "van", "tasks": 2}, 1)
    False
    """
    text = canonical({"identity": dict(identity), "seed": seed})
    return hashlib.sha256(text.encode()).hexdigest()
