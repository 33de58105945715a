"""What results' data is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engram.streams import OTHER

_DIGITS = 10


def data_name(identity: Mapping[str, Any]) -> str:
    """Return what a result's data is filed under; the oldest results do not tell."""
    return str(identity.get("data", ""))


def is_other(name: str) -> bool:
    """Say whether data is known not to be the paper's."""
    return name.startswith(OTHER)


def short_data(name: str) -> str:
    """Return as much of a data's name as a table shows.

    >>> short_data("other-3d648279948a9a1c"), short_data("7ec69f79ce1617ff")
    ('other-3d64827994', '7ec69f79ce')
    """
    digits = name.removeprefix(OTHER)
    return name[: len(name) - len(digits) + _DIGITS]
