"""Results in the settings that the paper's claims are about."""

from __future__ import annotations

from collections.abc import Sequence

from engram.paper import settings
from engram.report._setting import Setting
from engram.report._summary import Summary


def preset_names(setting: Setting) -> list[str]:
    """Return the names by which the paper's settings with so many tasks and examples are run.

    >>> preset_names(Setting("permuted-mnist", 20, 200))
    ['permuted-mnist-200']
    """
    return [
        name
        for known in settings().values()
        if (known["tasks"], known.get("examples")) == (setting.tasks, setting.examples)
        and setting.benchmark in known["benchmarks"]
        for name in known["benchmarks"]
        if name != setting.benchmark
    ]


def in_setting(summaries: Sequence[Summary], name: str) -> list[Summary]:
    """Return the results in one of the paper's settings: with all examples unless it says fewer.

    What was run on other data, which is no listed stand-in, is not among them.
    """
    found = to_the_end(summaries, name)
    most = max((summary.setting.examples for summary in found), default=0)
    wanted = settings()[name].get("examples", most)
    return [summary for summary in found if summary.setting.examples == wanted]


def to_the_end(summaries: Sequence[Summary], name: str) -> list[Summary]:
    """Return the results with all tasks of one of the paper's settings, whatever the examples."""
    known = settings()[name]
    return [
        summary
        for summary in summaries
        if summary.setting.benchmark in known["benchmarks"]
        and summary.setting.tasks == known["tasks"]
        and not summary.setting.other
    ]
