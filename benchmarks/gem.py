"""What GEM's quadratic programs cost: microseconds for all programs of a step together.

R runs with n past tasks each are solved by one call of the rule, as a plain call and, on a GPU, as
a captured one. How hard the programs are does not matter on a GPU: it always takes all rounds.

    python benchmarks/gem.py [--device cuda] [--repeats 200] [--json PATH]
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram.rules import GEM

RUNS, TASKS = (1, 5, 20, 64), (4, 16, 69)
BLOCKS = 5


def problems(runs: int, tasks: int, device: str) -> tuple[Tensor, Tensor]:
    """Return losses and dot products of random gradients that mostly oppose the current one."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(runs, tasks + 1, 1000, generator=generator)
    rows[:, 1:] -= 0.2 * rows[:, :1]
    return torch.ones(runs, tasks + 1, device=device), (rows @ rows.mT).to(device)


def captured(step: Callable[[], Any]) -> Callable[[], None]:
    """Return a replay of the step, which has been taken before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def microseconds(step: Callable[[], Any], repeats: int, device: str) -> float:
    """Return what one of many calls in a row takes, the device's work included."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    step()
    blocks = []
    for _ in range(BLOCKS):
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        wait()
        blocks.append((time.perf_counter() - start) / repeats)
    return 1e6 * statistics.median(blocks)


def measure(runs: int, tasks: int, repeats: int, device: str) -> dict[str, Any]:
    rule = GEM()
    losses, gram = problems(runs, tasks, device)

    def step() -> Tensor:
        return rule(losses, gram)

    row: dict[str, Any] = {"runs": runs, "tasks": tasks}
    row["plain"] = microseconds(step, repeats, device)
    row["captured"] = microseconds(captured(step), repeats, device) if device == "cuda" else None
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="GEM's quadratic programs, all runs at once.")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--repeats", type=int, default=200, help="calls in a block")
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(f"{'runs':>6}{'tasks':>7}{'plain µs':>12}{'captured µs':>14}")
    for runs, tasks in itertools.product(RUNS, TASKS):
        row = measure(runs, tasks, options.repeats, options.device)
        rows.append(row)
        graph = "-" if row["captured"] is None else f"{row['captured']:.1f}"
        print(f"{runs:>6}{tasks:>7}{row['plain']:>12.1f}{graph:>14}", flush=True)
    if options.json:
        on_gpu = options.device == "cuda"
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
            "torch": torch.__version__,
            "results": rows,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
