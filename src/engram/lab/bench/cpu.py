"""Steps on one CPU thread: the library's beside plain autograd, and every method's in a run.

The library's model is the paper's MLP (784-256-256-10), the batch 10, the reference batch 256; its
memory holds 16 finished tasks of 250 examples. Images are noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engram.lab.bench.products import products
from engram.lab.bench.sessions import EARLIER, permuted
from engram.lab.bench.timing import Times, median, ratio, take_turns, timed
from engram.lab.methods import method_entry, names
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

_BOUNDS = dict.fromkeys(("ewc", "pi", "mas", "rwalk"), 1.6)  # times VAN
_SLOW = ("mer", "prog-nn")
_PLAIN, USUAL = "van", "mega-ii"


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
        memory.references(REFERENCE, with_tasks=False)
        memory.add(next(batches), tasks=TASKS)

    return run


def task_by_task() -> list[str]:
    """Return the methods that learn one task after another; a joint one steps as VAN does."""
    return [name for name in names() if not method_entry(name).joint]


def methods(
    chosen: Sequence[str] | None = None, *, tasks: int = 2, blocks: int = 4, rounds: int = 15
) -> list[dict[str, Any]]:
    """Measure a step of each method in the last of so many tasks, VAN and MEGA-II among them.

    From the second task on there are penalties, and memories are read. The methods take turns.
    """
    wanted = dict.fromkeys([_PLAIN, USUAL, *(chosen or task_by_task())])
    with ExitStack() as stack:
        turns = {name: timed(method_step(name, tasks, stack)) for name in wanted}
        times = take_turns(turns, blocks, rounds, seldom=_SLOW)
    rows = [
        {
            "method": name,
            "task": tasks,
            "milliseconds": 1e3 * median(times, name),
            **ratio(times, name, _PLAIN),
            "beside_mega": ratio(times, name, USUAL)["ratio"],
            "bound": _BOUNDS.get(name),
        }
        for name in wanted
    ]
    return sorted(rows, key=lambda row: float(row["milliseconds"]))


def method_step(name: str, tasks: int, stack: ExitStack) -> Callable[[], None]:
    """Return a step of a method's last task, the next one each time, while the stack is open."""
    session = stack.enter_context(permuted(name, tasks=tasks))
    numbers = itertools.cycle(range(len(session.last_task(EARLIER))))

    def run() -> None:
        session.take(next(numbers))

    return run
