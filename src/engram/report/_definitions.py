"""What the paper's claims mean in numbers, and in which settings: paper_claims.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from engram.report._setting import Setting
from engram.report._summary import Summary, by_setting


@functools.cache
def definitions() -> Mapping[str, Any]:
    """Return the settings that claims are about, by name, and the checks of each claim."""
    text = resources.files("engram.report").joinpath("paper_claims.json").read_text("utf-8")
    defined: Mapping[str, Any] = json.loads(text)
    return defined


def preset_names(setting: Setting) -> list[str]:
    """Return the names by which the paper's settings with so many tasks and examples are run.

    >>> preset_names(Setting("permuted-mnist", 20, 200))
    ['permuted-mnist-200']
    """
    return [
        name
        for known in definitions()["settings"].values()
        if (known["tasks"], known.get("examples")) == (setting.tasks, setting.examples)
        and setting.benchmark in known["benchmarks"]
        for name in known["benchmarks"]
        if name != setting.benchmark
    ]


def in_setting(summaries: Sequence[Summary], name: str) -> list[Summary]:
    """Return the results in one of the paper's settings: with all examples unless it says fewer.

    What was run on other data, which is no listed stand-in, is not among them.
    """
    known = definitions()["settings"][name]
    settings = [
        setting
        for setting in by_setting(summaries)
        if setting.benchmark in known["benchmarks"]
        and setting.tasks == known["tasks"]
        and not setting.other
    ]
    most = max((setting.examples for setting in settings), default=0)
    wanted = known.get("examples", most)
    return [
        summary
        for summary in summaries
        if summary.setting in settings and summary.setting.examples == wanted
    ]
