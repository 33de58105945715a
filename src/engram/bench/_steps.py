"""Steps of the library beside the autograd passes that nobody can avoid, on one CPU thread.

The model is the paper's MLP (784-256-256-10), the batch 10, the reference batch 256; the memory
holds 16 finished tasks of 250 examples. Images are noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engram.bench._floor import products
from engram.bench._turns import Times, median, ratio, take_turns, timed
from engram.learner import Learner
from engram.memory import ClassRing, Memory
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Rule

TASKS, PER_CLASS, CLASSES, BATCH, REFERENCE = 16, 25, 10, 10, 256
SIZES = (784, 256, 256, CLASSES)
_PAIRS = (  # a candidate, what it is compared with, the largest ratio that is good enough
    ("two passes", "products alone", None),
    ("MEGA-II", "two passes", 1.10),
    ("A-GEM", "two passes", 1.10),
    ("MEGA-I", "two passes", 1.08),
    ("memory", "MEGA-II", 0.05),
    ("GEM", "17 passes", 1.30),
)
Step = Callable[[], None]
Batches = Iterator[tuple[Tensor, Tensor]]


def steps(blocks: int = 12, rounds: int = 40) -> list[dict[str, Any]]:
    """Measure the library's steps and their floors, which take turns.

    The passes are plain autograd, with a step of the optimiser; their products alone are what is
    left when all else is taken away. "memory" is what a step reads from it and one write, in a row.
    """
    torch.manual_seed(0)
    memory = filled_memory()
    candidates = {
        "two passes": timed(_passes(REFERENCE, BATCH, step=True)),
        "MEGA-II": timed(learner(MEGA2(), memory)),
        "A-GEM": timed(learner(AGEM(), memory)),
        "MEGA-I": timed(learner(MEGA1(), memory)),
        "memory": timed(_memory_alone(memory)),
    }
    gem = {
        "17 passes": timed(_passes(*[PER_CLASS * CLASSES] * TASKS, BATCH, step=False)),
        "GEM": timed(learner(GEM(), memory)),
    }
    few = max(1, rounds // 20)  # they take twenty times as long
    # By themselves: whatever came after them would find their data in the caches, not its own.
    alone = {"products alone": timed(products_alone())}
    times = take_turns(candidates, blocks, rounds) | take_turns(gem, blocks, few)
    times |= take_turns(alone, blocks, rounds)
    return [_compare(times, *pair) for pair in _PAIRS]


def _compare(times: Times, name: str, floor: str, bound: float | None) -> dict[str, Any]:
    return {
        "candidate": name,
        "milliseconds": 1e3 * median(times, name),
        "beside": floor,
        "beside_milliseconds": 1e3 * median(times, floor),
        **ratio(times, name, floor),
        "bound": bound,
    }


def products_alone() -> Step:
    """Return the matrix products of a reference pass and a current one."""
    return products(SIZES, (REFERENCE, BATCH), 1, "cpu")


def examples(count: int) -> tuple[Tensor, Tensor]:
    """Return images of noise, and every class equally often."""
    return torch.rand(count, 784), torch.arange(count) % CLASSES


def network() -> tuple[nn.Module, torch.optim.SGD]:
    """Return the paper's MLP as a module, and plain SGD for it."""
    pixels, first, second, classes = SIZES
    model = nn.Sequential(
        nn.Linear(pixels, first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Linear(second, classes),
    )
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def filled_memory() -> Memory:
    """Return a memory of 16 finished tasks."""
    memory = Memory(ClassRing(PER_CLASS))
    for task in range(TASKS):
        memory.add(examples(PER_CLASS * CLASSES), tasks=task)
        memory.end_task()
    return memory


def fresh(size: int) -> Batches:
    """Yield batch after batch of resident data, without a copy: nobody trains on one batch."""
    inputs, classes = examples(TASKS * PER_CLASS * CLASSES)
    for start in itertools.cycle(range(0, len(inputs) - size + 1, size)):
        yield inputs[start : start + size], classes[start : start + size]


def learner(rule: Rule, memory: Memory, batches: Batches | None = None) -> Step:
    """Return a step of the library as its users take it, sampling and writing included."""
    own = Learner(*network(), rule, memory, reference_batch=REFERENCE)
    coming = batches or fresh(BATCH)

    def run() -> None:
        own.observe(*next(coming), task=TASKS)

    return run


def _passes(*sizes: int, step: bool) -> Step:
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


def _memory_alone(memory: Memory) -> Step:
    batches = fresh(BATCH)

    def run() -> None:
        memory.references(REFERENCE, by_task=False, with_tasks=False)
        memory.add(next(batches), tasks=TASKS)

    return run
