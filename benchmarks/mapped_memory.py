"""What a step costs with 4 GB of examples in mapped files, beside a memory in RAM.

Each is a process of its own; that with mapped files may have no more than 1 GB of data of its own
(RLIMIT_DATA). They take turns, so that whatever else the machine does disturbs both alike, and the
steps' time is taken by the clock and as what the thread had of the processor. The model is an MLP
(3072-256-256-10), the batch 10, the reference batch 256; every page has been read.

    python benchmarks/mapped_memory.py [--examples 350000] [--rounds 15] [--json PATH]
        [--folder DIR]

``--json results/mapped-memory.json`` and `python -m tools.docs.memory` write docs/memory.md anew.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import engram
from engram.learner import Learner
from engram.memory import MappedStorage, Memory, Reservoir
from engram.rules import MEGA2

VALUES, BATCH, STEPS, LIMIT = 3072, 10, 40, 10**9


def serve(folder: str | None, examples: int) -> None:
    """Fill a memory, then take so many steps whenever a line comes, and say how long they took."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if folder is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    memory = Memory(Reservoir(examples), None if folder is None else MappedStorage(folder))
    noise = torch.rand(1000, VALUES)
    for start in range(0, examples, 1000):
        own = noise[: min(1000, examples - start)]
        memory.add((own, torch.arange(len(own)) % 10))
    for start in range(0, examples, 1000):  # the page cache and the page tables are warm
        memory.read(range(start, min(start + 1000, examples)))
    model = nn.Sequential(
        nn.Linear(VALUES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    learner = Learner(model, torch.optim.SGD(model.parameters(), lr=0.01), MEGA2(), memory)
    print(json.dumps({"bytes": memory.nbytes}), flush=True)
    for _ in sys.stdin:
        taken = []
        for _ in range(STEPS):
            before = time.perf_counter(), time.thread_time()
            learner.observe(noise[:BATCH], torch.arange(BATCH))
            taken.append((time.perf_counter() - before[0], time.thread_time() - before[1]))
        clock, processor = map(statistics.median, zip(*taken, strict=True))
        print(json.dumps({"clock": clock, "processor": processor, "own": own_bytes()}), flush=True)


def own_bytes() -> int:
    """Return what the process holds of main memory that is no file's."""
    with Path("/proc/self/status").open() as status:
        own = next(line for line in status if line.startswith("RssAnon"))
    return 1024 * int(own.split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps with a memory in mapped files.")
    parser.add_argument("--examples", type=int, default=350_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    parser.add_argument("--folder", type=Path, help="a disk with room for the examples")
    parser.add_argument("--serve", choices=["ram", "mapped"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(None if options.serve == "ram" else str(options.folder), options.examples)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [sys.executable, __file__, "--examples", str(options.examples), "--folder"]
        children = {
            kind: subprocess.Popen(
                [*command, f"{folder}/memory", "--serve", kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for kind in ("ram", "mapped")
        }
        found: dict[str, list[dict[str, float]]] = {kind: [] for kind in children}
        nbytes = 0
        for each in children.values():
            assert each.stdout is not None
            nbytes = json.loads(each.stdout.readline())["bytes"]
        for _ in range(options.rounds):
            for kind, each in children.items():
                assert each.stdin is not None
                assert each.stdout is not None
                each.stdin.write("\n")
                each.stdin.flush()
                found[kind].append(json.loads(each.stdout.readline()))
        for each in children.values():
            each.communicate()
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "bytes": nbytes,
        "examples": options.examples,
        "limit": LIMIT,
        "own": {kind: max(each["own"] for each in rounds) for kind, rounds in found.items()},
        "rounds": options.rounds,
        "versions": {
            "engram": engram.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }
    for time_by in ("clock", "processor"):
        ram, mapped = ([each[time_by] for each in found[kind]] for kind in ("ram", "mapped"))
        ratios = [one / other for one, other in zip(mapped, ram, strict=True)]
        result[time_by] = {
            "milliseconds": {
                "ram": 1e3 * statistics.median(ram),
                "mapped": 1e3 * statistics.median(mapped),
            },
            "ratio": statistics.median(ratios),
            "ratios": [min(ratios), max(ratios)],
        }
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
