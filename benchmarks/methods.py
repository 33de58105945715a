"""What a step of each method costs in a benchmark run, beside a plain step.

One CPU thread, one process: the methods take turns, one step each, and the thread's own CPU time
is counted. Every method is in its second task of Permuted MNIST (so penalties act and memories are
read) or, with --tasks N, in its Nth: none of the penalties may cost more there. VAN and MEGA-II are
always among them.

    python benchmarks/methods.py [METHOD ...] [--blocks 4] [--rounds 15] [--tasks 2]
"""

from __future__ import annotations

import argparse

import torch
from rich.console import Console

from engram.app import report
from engram.lab.bench import methods


def main() -> None:
    parser = argparse.ArgumentParser(description="A step of each method beside a plain step.")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15, help="rounds in a block")
    parser.add_argument("--tasks", type=int, default=2, help="measure in this task")
    parser.add_argument("methods", nargs="*", help="all of them unless given")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = methods(
        options.methods, tasks=options.tasks, blocks=options.blocks, rounds=options.rounds
    )
    Console().print(report.speed_table("methods", rows))


if __name__ == "__main__":
    main()
