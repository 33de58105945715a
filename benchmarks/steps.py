"""What a step of the library costs beside the autograd passes that nobody can avoid.

One CPU thread, one process: the candidates take turns, and the thread's own CPU time is counted, so
that whatever else the machine is doing disturbs all of them alike and the ratios hold. The model is
the paper's MLP (784-256-256-10), the batch 10, the reference batch 256; the memory holds 16
finished tasks of 250 examples. "memory" is the read and the write of each step above it, in a row.

    python benchmarks/steps.py [--blocks 12] [--rounds 40] [--json PATH]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from rich.console import Console

from engram.app import report
from engram.lab.bench import device_name, steps


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of the library beside plain autograd.")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=40, help="rounds in a block")
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = steps(options.blocks, options.rounds)
    Console().print(report.speed_table("steps", rows))
    if options.json:
        command = f"python benchmarks/steps.py --blocks {options.blocks} --rounds {options.rounds}"
        tables = {"steps": rows}
        report.save_performance(options.json, tables, device=device_name("cpu"), command=command)


if __name__ == "__main__":
    main()
