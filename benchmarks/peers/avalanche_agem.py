"""Avalanche's A-GEM, a turn of steps at a time.

It runs in an environment of its own (benchmarks/peers/requirements.txt) and calls Avalanche's
public interface alone. The plugin is handed 16 experiences to remember 250 examples of each; then
a seventeenth one is trained on, without a test in between. The experiences are noise, made by
``tensors_benchmark`` or (--datasets) by ``benchmark_from_datasets`` of TensorDatasets, or (--mnist
FOLDER) Avalanche's own PermutedMNIST, of files in that folder. With --quiet the default metrics and
loggers are off.

A line on stdin says how many iterations to take; the answer, a line of JSON, has the mean CPU time
of the thread over them, in seconds:

- ``whole``: from one iteration's end to the next one's: loading the batch, everything that the
  strategy and its plugins do, the step.
- ``step``: the same, less the loading of the batch.
- ``arithmetic``: the same, less the sampling of the memory as well.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any, TextIO

import torch
from avalanche.benchmarks import (  # type: ignore[import-not-found]
    PermutedMNIST,
    benchmark_from_datasets,
    tensors_benchmark,
)
from avalanche.benchmarks.utils import as_classification_dataset  # type: ignore[import-not-found]
from avalanche.training.plugins import (  # type: ignore[import-not-found]
    AGEMPlugin,
    SupervisedPlugin,
)
from avalanche.training.plugins.evaluation import (  # type: ignore[import-not-found]
    default_evaluator,
)
from avalanche.training.templates import SupervisedTemplate  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.utils.data import TensorDataset

TASKS, PER_TASK, CLASSES, BATCH, REFERENCE = 16, 250, 10, 10, 256
EPOCHS = 10**9  # over the last experience: until nobody asks any more


class Memory(AGEMPlugin):  # type: ignore[misc]
    """Avalanche's plugin, with a clock beside the sampling of its memory."""

    def __init__(self) -> None:
        super().__init__(patterns_per_experience=PER_TASK, sample_size=REFERENCE)
        self.sampling = 0.0

    def sample_from_memory(self) -> list[Tensor]:
        start = time.thread_time()
        batch: list[Tensor] = super().sample_from_memory()
        self.sampling += time.thread_time() - start
        return batch


class Turns(SupervisedPlugin):  # type: ignore[misc]
    """Stands first among the plugins; between two turns it waits for the other process."""

    def __init__(self, memory: Memory, answers: TextIO) -> None:
        super().__init__()
        self.memory, self.answers = memory, answers
        self.left = self.asked = 0
        self.started = self.loading = 0.0
        self.finished = 0.0

    def before_training_iteration(self, strategy: object, **_: object) -> None:  # noqa: ARG002
        self.loading += time.thread_time() - self.finished

    def after_training_iteration(self, strategy: object, **_: object) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left <= 0:
            self.hand_over()
        self.finished = time.thread_time()

    def hand_over(self) -> None:
        """Tell what the turn took, and wait for the next."""
        whole = time.thread_time() - self.started
        if self.asked:
            step = whole - self.loading
            sums = {"whole": whole, "step": step, "arithmetic": step - self.memory.sampling}
            self.say({name: total / self.asked for name, total in sums.items()})
        line = sys.stdin.readline()
        if not line:
            raise SystemExit
        self.left = self.asked = int(line)
        self.loading = self.memory.sampling = 0.0
        self.started = time.thread_time()

    def say(self, answer: dict[str, Any]) -> None:
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()


def noise(count: int) -> tuple[Tensor, Tensor]:
    """Return images of noise, and every class equally often."""
    return torch.rand(count, 784), torch.arange(count) % CLASSES


def experiences(options: argparse.Namespace) -> Any:  # noqa: ANN401
    """Return 16 experiences to remember and one to measure."""
    if options.mnist:
        # Pixels are scaled to [0, 1], as in Engram's runs, and not centred besides.
        kind = {"train_transform": None, "eval_transform": None, "dataset_root": options.mnist}
        return PermutedMNIST(TASKS + 1, seed=0, **kind).train_stream
    data = [noise(PER_TASK) for _ in range(TASKS)] + [noise(TASKS * PER_TASK)]
    if not options.datasets:
        made = tensors_benchmark(
            train_tensors=data, test_tensors=[noise(BATCH)], task_labels=[0] * len(data)
        )
        return made.train_stream
    wrapped = []
    for inputs, classes in data:
        held = TensorDataset(inputs, classes)
        held.targets = classes.tolist()  # type: ignore[attr-defined]
        wrapped.append(as_classification_dataset(held))
    return benchmark_from_datasets(train=wrapped).train_stream


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--datasets", action="store_true")
    parser.add_argument("--mnist")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (what is logged is no answer)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = (
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, CLASSES),
    )
    model = nn.Sequential(nn.Flatten(), *layers)
    memory = Memory()
    turns = Turns(memory, answers)
    strategy = SupervisedTemplate(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        plugins=[turns, memory],
        evaluator=None if options.quiet else default_evaluator,
    )
    *finished, last = experiences(options)
    for each in finished:
        memory.update_memory(each.dataset)
    turns.say({name: version(name) for name in ("avalanche-lib", "torch", "torchvision")})
    strategy.train_epochs = EPOCHS
    strategy.train(last, num_workers=0)
