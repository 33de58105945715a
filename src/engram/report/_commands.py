"""The commands that runs are made by."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from engram.report._data_names import data_name, is_other
from engram.report._settings import value_text
from engram.report._summary import Summary


def was_typed(summary: Summary) -> bool:
    """Say whether there is no other command for these runs than the one that was typed.

    Where one's own data lies, or other weights, is no part of what a result is filed under.
    """
    data = data_name(summary.identity)
    return is_other(data) or summary.setting.benchmark.endswith(f"-{data}")


def again(summary: Summary, usual: Mapping[str, Any]) -> str:
    """Return the command that trains these runs again, with today's presets."""
    given = summary.identity
    words = ["engram", "run", summary.setting.benchmark, summary.method]
    words += ["--seeds", str(max(row.seed for row in summary.rows) + 1)]
    for name in ("tasks", "examples"):
        if given[name] != usual.get(name):
            words += [f"--{name}", str(given[name])]
    for key, value in given["settings"].items():
        if value != usual.get("settings", {}).get(key):
            words += ["--set", f"{key}={value_text(value)}"]
    return shlex.join(words)
