"""What a step of the library costs beside the autograd passes that nobody can avoid.

One CPU thread, one process: the candidates take turns, and the thread's own CPU time is counted, so
that whatever else the machine is doing disturbs all of them alike and the ratios hold. The model is
the paper's MLP (784-256-256-10), the batch 10, the reference batch 256; the memory holds 16
finished tasks of 250 examples. "memory" is one sample and one write, a part of every step above it.

    python benchmarks/steps.py [--blocks 12] [--rounds 40] [--json PATH]
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engram import Learner
from engram.memory import ClassRing, Memory
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Rule

TASKS, PER_CLASS, CLASSES, BATCH, REFERENCE = 16, 25, 10, 10, 256
# candidate: (what it is compared with, the largest ratio that is good enough)
TARGETS = {
    "MEGA-II": ("two passes", 1.10),
    "A-GEM": ("two passes", 1.10),
    "MEGA-I": ("two passes", 1.08),
    "memory": ("MEGA-II", 0.05),
    "GEM": ("17 passes", 1.30),
}
Step = Callable[[], None]
Times = dict[str, list[list[float]]]  # seconds, by candidate and block


def examples(count: int) -> tuple[Tensor, Tensor]:
    """Return images of noise, and every class equally often."""
    return torch.rand(count, 784), torch.arange(count) % CLASSES


def network() -> tuple[nn.Module, torch.optim.SGD]:
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def filled_memory() -> Memory:
    memory = Memory(ClassRing(PER_CLASS))
    for task in range(TASKS):
        memory.add(examples(PER_CLASS * CLASSES), tasks=task)
        memory.end_task()
    return memory


def fresh(size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batch after batch of resident data, without a copy: nobody trains on one batch."""
    inputs, classes = examples(TASKS * PER_CLASS * CLASSES)
    for start in itertools.cycle(range(0, len(inputs) - size + 1, size)):
        yield inputs[start : start + size], classes[start : start + size]


def passes(*sizes: int, step: bool) -> Step:
    """Return plain autograd passes over batches of these sizes, and one step of the optimiser."""
    model, optimizer = network()
    batches = {size: fresh(size) for size in set(sizes)}

    def run() -> None:
        optimizer.zero_grad()
        for size in sizes:
            inputs, classes = next(batches[size])
            torch.autograd.backward(cross_entropy(model(inputs), classes))
        if step:
            optimizer.step()

    return run


def learner(rule: Rule, memory: Memory) -> Step:
    """Return a step of the library as its users take it, sampling and writing included."""
    own = Learner(*network(), rule, memory, reference_batch=REFERENCE)
    batches = fresh(BATCH)

    def run() -> None:
        own.observe(*next(batches), task=TASKS)

    return run


def memory_alone(memory: Memory) -> Step:
    batches = fresh(BATCH)

    def run() -> None:
        memory.sample(REFERENCE)
        memory.add(next(batches), tasks=TASKS)

    return run


def measure(candidates: dict[str, Step], blocks: int, rounds: int) -> Times:
    """Let the candidates take turns; the first round is not counted."""
    times: Times = {name: [[] for _ in range(blocks)] for name in candidates}
    for run in candidates.values():
        run()
    for block in range(blocks):
        for _ in range(rounds):
            for name, run in candidates.items():
                start = time.thread_time()
                run()
                times[name][block].append(time.thread_time() - start)
    return times


def compare(times: Times, name: str) -> dict[str, Any]:
    """Set a candidate beside its floor: medians, and the ratio of medians block by block."""
    floor, target = TARGETS[name]
    own, other = (statistics.median(itertools.chain(*times[each])) for each in (name, floor))
    blocks = zip(times[name], times[floor], strict=True)
    ratios = [statistics.median(mine) / statistics.median(theirs) for mine, theirs in blocks]
    return {
        "candidate": name,
        "milliseconds": 1e3 * own,
        "beside": floor,
        "beside_milliseconds": 1e3 * other,
        "ratio": statistics.median(ratios),
        "lowest_block": min(ratios),
        "highest_block": max(ratios),
        "target": target,
        "met": statistics.median(ratios) <= target,
    }


def run_all(blocks: int, rounds: int) -> list[dict[str, Any]]:
    memory = filled_memory()
    steps = {
        "two passes": passes(REFERENCE, BATCH, step=True),
        "MEGA-II": learner(MEGA2(), memory),
        "A-GEM": learner(AGEM(), memory),
        "MEGA-I": learner(MEGA1(), memory),
        "memory": memory_alone(memory),
    }
    gem = {
        "17 passes": passes(*[PER_CLASS * CLASSES] * TASKS, BATCH, step=False),
        "GEM": learner(GEM(), memory),
    }
    times = measure(steps, blocks, rounds) | measure(gem, blocks, max(1, rounds // 20))
    return [compare(times, name) for name in TARGETS]


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'step':<10}{'ms':>8}   {'beside':<12}{'ms':>8}{'ratio':>8}   {'blocks':<15}target")
    for row in rows:
        print(
            f"{row['candidate']:<10}{row['milliseconds']:8.2f}   {row['beside']:<12}"
            f"{row['beside_milliseconds']:8.2f}{row['ratio']:8.3f}   "
            f"{row['lowest_block']:.3f}-{row['highest_block']:.3f}    "
            f"{row['target']:.2f} {'met' if row['met'] else 'MISSED'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of the library beside plain autograd.")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=40, help="rounds in a block")
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = run_all(options.blocks, options.rounds)
    show(rows)
    if options.json:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": f"one thread of {platform.processor() or platform.machine()}",
            "torch": torch.__version__,
            "results": rows,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
