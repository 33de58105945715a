"""Fill the counts into docs/reliability.md.

``python -m tools.docs.reliability`` writes the page anew from results/reliability.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
Counts = Mapping[str, Any]  # as the harness notes them


def cpu(counts: Counts) -> str:
    """Say how the kills on a CPU ended."""
    methods, places = counts["methods"], counts["places"]
    norm, rates = (
        {name.removesuffix(end): count for name, count in methods.items() if name.endswith(end)}
        for end in (", batch norm", ", two rates")
    )
    others = {name: count for name, count in methods.items() if "," not in name}
    return "\n".join(
        [
            f"**{counts['identical']} of {counts['kills']} kills ended bit-identical** "
            f"({counts['date']}, {_versions(counts)}).",
            "",
            "| where it was killed | kills |",
            "|---|---:|",
            *(f"| {_PLACES[place]} | {places[place]} |" for place in _PLACES if place in places),
            "",
            f"- A fully connected network: {_listed(others)}.",
            f"- A residual network with batch norm: {_listed(norm)}.",
            f"- A fully connected network, two learning rates as one stack: {_listed(rates)}.",
        ]
    )


_PLACES = {
    "a random moment": "at a random moment",
    "write": "inside a write of a checkpoint: half of it is on the disk",
    "fsync": "at an fsync, of the file or of its folder",
    "rename": "at one of the two renames",
    "before commit": "when the results were about to be committed to the store",
    "inside commit": "inside the commit: its journal is left behind",
    "after commit": "after the commit, before the checkpoint was removed",
    "inside removal": "between the calls that remove the checkpoint and its folder",
}


def gpu(counts: Counts) -> str:
    """Say how the kills on a GPU ended."""
    return (
        f"**{counts['identical']} of {counts['kills']} kills ended bit-identical** on one "
        f"{counts['device']} ({counts['date']}, {_versions(counts)})."
    )


def cost(counts: Counts) -> str:
    """Say what saving costs."""
    rows = [
        f"| {seeds} | {each['bytes'] / 1e6:.1f} MB | {1000 * each['seconds']:.0f} ms "
        f"| {each['percent']:.2f} % |"
        for seeds, each in sorted(counts["stacked"].items(), key=lambda item: int(item[0]))
    ]
    head = f"| stacked seeds | file | one checkpoint | of the time, every {counts['every']:.0f} s |"
    when = f"Measured on two slow cores ({counts['date']}, {_versions(counts)})."
    return "\n".join([head, "|---:|---:|---:|---:|", *rows, "", when])


def filled(page: str, counts: Counts) -> str:
    """Return the page with its counts made anew; what was not counted yet says so."""
    for name, make in {"cpu": cpu, "gpu": gpu, "cost": cost}.items():
        before, begin, rest = page.partition(f"<!-- counted: {name} -->\n")
        _, end, after = rest.partition("<!-- counted -->\n")
        assert end, f"the page has no place for {name}"
        block = make(counts[name]) if name in counts else "Not counted yet."
        page = f"{before}{begin}{block}\n{end}{after}"
    return page


def _listed(methods: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in methods.items())


def _versions(counts: Counts) -> str:
    return ", ".join(f"{name} {version}" for name, version in counts["versions"].items())


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), json.loads(COUNTS.read_text())))
