"""What a step of each method costs in a benchmark run, beside a plain step.

One CPU thread, one process: the methods take turns, one step each, and the thread's own CPU time
is counted. Every method is in its second task of Permuted MNIST (so penalties pull and memories are
read) or, with --tasks N, in its Nth: none of the penalties may cost more there.

    python benchmarks/methods.py [METHOD ...] [--rounds 60] [--tasks 2]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence

import torch

from engram.engine import Batch
from engram.methods import FinishedTask, Setup, method_entry, names
from engram.plan import generator
from engram.protocol import specify
from engram.streams import PermutedMnist

EXAMPLES = 500  # in each task; the memory keeps 250 of them
PENALTIES = ("ewc", "pi", "mas", "rwalk")
SLOW = ("mer", "prog-nn")  # take a tenth of the turns


def steps(name: str, tasks: int) -> Iterator[None]:
    """Yield after each step of a method's last task, again and again."""
    stream = PermutedMnist([0], tasks=tasks + 1, examples=EXAMPLES)
    settings = specify("permuted-mnist", name).method_settings()
    network = stream.network()
    parameters = network.initialise(generator(0, "parameters")).unsqueeze(0)
    method = method_entry(name).build(Setup(network, parameters, [0], stream), settings)
    size = settings.batch_size
    for task in range(tasks):
        examples = stream.train(task)
        method.begin_task(task, examples.labels)
        last = task == tasks - 1
        while True:
            for step in range(EXAMPLES // size):
                part = slice(step * size, (step + 1) * size)
                stored = examples.inputs[:, part]
                batch = Batch(stream.normalise(stored), examples.labels[:, part])
                method.observe(step, stored, batch)
                if last:
                    yield
            if not last:
                break
        method.end_task(task, FinishedTask(examples))


def measure(methods: Sequence[str], rounds: int, tasks: int) -> dict[str, float]:
    """Return the median seconds of a step of each method."""
    running = {name: steps(name, tasks) for name in methods}
    times: dict[str, list[float]] = {name: [] for name in running}
    for run in running.values():
        next(run)
    for turn in range(rounds):
        for name, run in running.items():
            if name in SLOW and turn % 10:
                continue
            start = time.thread_time()
            next(run)
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="A step of each method beside a plain step.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=2, help="measure in this task")
    every = [name for name in names() if name != "multi-task"]
    parser.add_argument("methods", nargs="*", default=every, help="all of them unless given")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    seconds = measure(options.methods, options.rounds, options.tasks)
    beside = [name for name in ("van", "mega-ii") if name in seconds]
    print(
        f"{'method':<20}{'ms a step':>10}" + "".join(f"{'beside ' + each:>16}" for each in beside)
    )
    for name, taken in sorted(seconds.items(), key=lambda item: item[1]):
        bound = "   at most 1.60" if name in PENALTIES else ""
        ratios = "".join(f"{taken / seconds[each]:16.2f}" for each in beside)
        print(f"{name:<20}{1e3 * taken:10.2f}{ratios}{bound}")


if __name__ == "__main__":
    main()
