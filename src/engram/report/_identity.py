"""Parts of what a result is filed under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engram.report._summary import Summary

PRECISION = "precision"  # in which a device multiplies: no setting of the paper's


def same_settings(usual: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether both are of the same split and settings, whatever the precision."""
    ones, others = (
        {key: value for key, value in each.get("settings", {}).items() if key != PRECISION}
        for each in (usual, given)
    )
    return ones == others and usual.get("split") == given.get("split")


def tried(summary: Summary, beside: Sequence[Summary]) -> set[str]:
    """Return the settings that a search varies: no value of theirs is usual where one is sought."""
    if summary.setting.split != "tuning":
        return set()
    given = flat(summary.identity)
    others = [flat(other.identity) for other in beside if other.method == summary.method]
    return {key for key in given if any(given[key] != other.get(key) for other in others)}


def flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings and whatever else is not in a table's own columns and headings."""
    apart = ("benchmark", "method", "tasks", "examples", "split", "data", "settings")
    rest = {key: value for key, value in identity.items() if key not in apart}
    return {**identity.get("settings", {}), **rest}
