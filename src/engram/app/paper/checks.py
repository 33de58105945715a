"""What the paper claims, in numbers, and in which settings: claims.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any


def claims() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the paper's claims in its order: for each sentence the checks it stands for."""
    checks: Mapping[str, Sequence[Mapping[str, Any]]] = _document()["claims"]
    return checks


def settings() -> Mapping[str, Mapping[str, Any]]:
    """Return the settings that claims are about, by name: title, benchmarks, tasks, examples.

    ``benchmarks`` are the names by which it is run; without ``examples`` it has all of them.
    """
    known: Mapping[str, Mapping[str, Any]] = _document()["settings"]
    return known


@functools.cache
def _document() -> Mapping[str, Any]:
    text = resources.files("engram.app.paper").joinpath("claims.json").read_text("utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document
