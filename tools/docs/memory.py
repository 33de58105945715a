"""Fill what a memory in mapped files costs into docs/memory.md.

``python -m tools.docs.memory`` writes the page anew from results/mapped-memory.json, which
benchmarks/mapped_memory.py makes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NUMBERS = ROOT / "results" / "mapped-memory.json"
PAGE = ROOT / "docs" / "memory.md"
_BEGIN, _END = "<!-- measured: mapped -->\n", "<!-- measured -->\n"


def measured(numbers: Mapping[str, Any]) -> str:
    """Return the sentence of the page."""
    clock, processor = numbers["clock"], numbers["processor"]
    versions = ", ".join(f"{name} {each}" for name, each in numbers["versions"].items())
    low, high = processor["ratios"]
    return (
        f"Measured (`benchmarks/mapped_memory.py`): with {numbers['examples']:,} examples, "
        f"{numbers['bytes'] / 1e9:.1f} GB, in a process that may have "
        f"{numbers['limit'] / 1e9:.0f} GB of data of its own (`RLIMIT_DATA`) and held "
        f"{numbers['own']['mapped'] / 1e6:.0f} MB, a step of MEGA-II took "
        f"{processor['ratio']:.2f} times the processor's time that it took with the memory in RAM "
        f"({low:.2f} to {high:.2f} in {numbers['rounds']} rounds; "
        f"{processor['milliseconds']['mapped']:.1f} and {processor['milliseconds']['ram']:.1f} "
        f"ms), and {clock['ratio']:.2f} times by the clock. Batch 10, reference batch 256, an MLP "
        f"3072-256-256-10, the page cache warm, on a machine of {numbers['cores']} cores with a "
        f"load of {numbers['load']:.1f} ({numbers['date']}, {versions})."
    )


def filled(page: str, numbers: Mapping[str, Any]) -> str:
    """Return the page with its numbers made anew."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert end, "the page has no place for what was measured"
    return f"{before}{begin}{measured(numbers)}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(
        filled(PAGE.read_text("utf-8"), json.loads(NUMBERS.read_text("utf-8"))), "utf-8"
    )
