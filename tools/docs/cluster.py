"""Fill what the driver of a cluster costs into docs/cluster.md.

``python -m tools.docs.cluster`` writes the page anew from results/driver.json, which
benchmarks/driver.py and benchmarks/sleepers.py make.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NUMBERS = ROOT / "results" / "driver.json"
PAGE = ROOT / "docs" / "cluster.md"
_BEGIN, _END = "<!-- measured: driver -->\n", "<!-- measured -->\n"
_STUDY = (
    ("milliseconds to plan a run", "to plan a run", "{:.2f} ms"),
    ("milliseconds to find a run stored", "to find it in the store, when asked again", "{:.2f} ms"),
    ("milliseconds to store a run", "to take its results and store them", "{:.2f} ms"),
    ("seconds for the report", "the report of all", "{:.0f} s"),
)


def measured(numbers: Mapping[str, Any]) -> str:
    """Return the block of a page that says what the driver costs."""
    return "\n\n".join(
        [_study(numbers["study"]), _paper(numbers["paper"]), _sleepers(numbers["sleepers"])]
    )


def _study(part: Mapping[str, Any]) -> str:
    small, large = part["measured"]
    rows = [
        f"| {words} | {' | '.join(_both(form, each[name]) for each in (small, large))} |"
        for name, words, form in _STUDY
    ]
    return "\n".join(
        [
            f"The driver's own time for a study of 17 tasks, on {_machine(part)}, while others had "
            f"its cores busy (a load of {large['others at work']:.0f}), and of that the CPU's:",
            "",
            f"| | {small['runs']:,} runs | {large['runs']:,} runs |",
            "|---|---:|---:|",
            *rows,
        ]
    )


def _both(form: str, measured: Sequence[float]) -> str:
    """Return the time that something took, and that of the CPU."""
    seconds, cpu = measured
    return f"{form.format(seconds)} ({form.format(cpu)})"


def _paper(part: Mapping[str, Any]) -> str:
    found = part["measured"]
    return (
        f"On paper, with {found['workers']:,} simulated workers, each of which dies after "
        f"{found['hours until a worker dies']:.0f} hours in the mean, {found['runs']:,} runs of "
        f"{found['seconds of a run'] / 60:.0f} minutes took {found['hours']:.2f} hours "
        f"({found['hours if nobody waited or died']:.2f} if nobody waited or died): "
        f"{found['deaths']:,} deaths, {100 * found['share of the work done twice']:.1f} % of the "
        f"work done twice, none of the runs lost or stored twice. The real loop and the real store "
        f"served them in {found['driver seconds']:.0f} seconds, "
        f"{100 * found['share of the time that the driver works']:.1f} % of that time."
    )


def _sleepers(part: Mapping[str, Any]) -> str:
    found = part["measured"]
    cpu = found["milliseconds of the driver's CPU for a run"]
    return (
        f"With {found['processes that slept']} real processes on {_machine(part)}, held by agents "
        "as on a cluster, that sleep for a second in place of training and import no torch, and a "
        f"load of {found['others at work']:.0f}, {found['runs']:,} runs took "
        f"{found['seconds']:.0f} seconds, the start of the processes included, and {cpu:.1f} ms of "
        "the driver's CPU each."
    )


def _machine(part: Mapping[str, Any]) -> str:
    made = part["versions"].items()  # the file says the commit too
    versions = ", ".join(f"{name} {each}" for name, each in made if name != "commit")
    return f"a machine of {part['cores']} cores ({part['date']}, {versions})"


def filled(page: str, numbers: Mapping[str, Any]) -> str:
    """Return the page with its numbers made anew."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert end, "the page has no place for what was measured"
    return f"{before}{begin}{measured(numbers)}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), json.loads(NUMBERS.read_text())))
