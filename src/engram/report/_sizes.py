"""What methods would hold that the paper could not run: projections.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources


def projected_sizes(name: str) -> Mapping[str, Mapping[str, int]]:
    """Return, by method, what it would hold on the paper's tasks, as runs record it.

    ``name`` is a benchmark's, by which the setting with all its tasks and examples goes too.

    >>> sorted(projected_sizes("split-cub")["prog-nn"])
    ['parameters', 'state_bytes']
    """
    return _projections().get(name, {})


@functools.cache
def _projections() -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    text = resources.files("engram.report").joinpath("projections.json").read_text("utf-8")
    held: Mapping[str, Mapping[str, Mapping[str, int]]] = json.loads(text)["held"]
    return held
