"""What steps cost before and after a change of Engram, side by side.

`engram bench` of two checkouts takes turns, round by round, each in a process of its own, with the
same Python and the same torch. A step's time is that of its fastest round, as whatever else a
machine does makes it longer; the ratios of the rounds say how much that is.

    git worktree add /tmp/before COMMIT
    python benchmarks/versions.py /tmp/before . [TABLE ...] [--device cpu] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from engram.app import report

UNITS = {"milliseconds": 1.0, "microseconds": 1e-3}  # in milliseconds
NAMES = (
    "candidate",
    "method",
    "benchmark",
    "precision",
    "together",
    "runs",
)  # what tells rows apart
Measured = Mapping[str, Any]  # what `engram bench --json` writes


def bench(checkout: Path, tables: Sequence[str], device: str) -> Measured:
    """Return what a checkout's `engram bench` measures."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.json"
        command = [sys.executable, "-m", "engram", "bench", *tables, "--device", device]
        subprocess.run(
            [*command, "--json", path], env=environment, cwd=folder, check=True, stdout=sys.stderr
        )
        measured: Measured = json.loads(path.read_text("utf-8"))
    return measured


def step_times(measured: Measured) -> dict[str, float]:
    """Return the milliseconds of every step that was measured, by its name."""
    return {
        ", ".join([table, *(str(row[name]) for name in NAMES if name in row)]): row[unit] * scale
        for table, rows in measured["tables"].items()
        for row in rows
        for unit, scale in UNITS.items()
        if unit in row
    }


def compare(before: Sequence[Measured], after: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return a row for each step that both have, from as many rounds of each.

    >>> first, second = ({"tables": {"steps": [{"candidate": "MEGA-II", "milliseconds": each}]}}
    ...                  for each in (4.0, 5.0))
    >>> compare([first, first], [first, second])[0]["ratio"]
    1.0
    """
    rounds = [
        (step_times(one), step_times(other)) for one, other in zip(before, after, strict=True)
    ]
    common = [
        name for name in rounds[0][0] if all(name in each for pair in rounds for each in pair)
    ]
    rows = []
    for name in common:
        ratios = [other[name] / one[name] for one, other in rounds]
        fastest = [min(each[name] for each in own) for own in zip(*rounds, strict=True)]
        rows.append(
            {
                "step": name,
                "before": fastest[0],
                "after": fastest[1],
                "ratio": fastest[1] / fastest[0],
                "lowest": min(ratios),
                "highest": max(ratios),
            }
        )
    return rows


def main() -> None:
    """Measure both in turns, and print or keep the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="a checkout of Engram")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("tables", nargs="*", help="those of engram bench; all, unless given")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    measured: tuple[list[Measured], list[Measured]] = ([], [])
    for _ in range(asked.rounds):
        for checkout, found in zip((asked.before, asked.after), measured, strict=True):
            found.append(bench(checkout, asked.tables, asked.device))
    rows = compare(*measured)
    Console().print(report.speed_table("versions", rows))
    if asked.json is not None:
        versions = {"compared with Engram": measured[0][0]["versions"]["engram"]}
        what = ["BEFORE", "AFTER", *asked.tables, "--device", asked.device]
        command = f"python benchmarks/versions.py {' '.join(what)} --rounds {asked.rounds}"
        report.save_performance(
            asked.json,
            {"versions": rows},
            device=measured[0][0]["device"],
            command=command,
            versions=versions,
        )


if __name__ == "__main__":
    main()
