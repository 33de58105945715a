"""PROG-NN (progressive neural networks): a column for each task, the old ones frozen."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients import Mix
from engram.lab.engine import Batch, absorbed, mean_loss
from engram.lab.methods.method import Method, MethodSettings, Setup
from engram.lab.methods.registry import ALL_TARGETS, LEARNING_RATES, Entry, register
from engram.lab.plan import generator


class ProgNn(Method):
    """Learns each task with a column of its own, which reads the columns of the tasks before.

    Plain SGD on the newest column; a task is predicted by its own column, so nothing is
    forgotten. What a column reads of the others is the network's to say (`Network.progressive`).
    ``parameters`` and ``buffers`` are the newest column's.
    """

    capturable = settled = True
    state: ClassVar[tuple[str, ...]] = ()  # the columns, below
    settings: MethodSettings

    def __init__(self, setup: Setup, settings: MethodSettings) -> None:
        super().__init__(setup, settings)
        if self.optimizer is not None:
            raise EngramError(
                "optimizer must be sgd for prog-nn, with a constant schedule: its columns take "
                f"plain steps of their own, not {settings.optimizer!r}."
            )
        self.progressive = setup.network.progressive(setup.parameters)
        self.buffers = self.progressive.buffers[0]
        self._seeds = tuple(setup.seeds)

    def begin_task(self, task: int, labels: Tensor) -> None:  # noqa: ARG002
        """Freeze what was learned and draw the task's column; the first one is there already."""
        if task == 0:
            return
        if task != len(self.progressive.columns):
            raise EngramError(
                f"task must be {len(self.progressive.columns)}, the next one, because columns "
                f"are added in order, not {task}."
            )
        sources = [generator(seed, "column", task) for seed in self._seeds]
        # A late column has many times a network's weights.
        with ThreadPoolExecutor(len(sources)) as threads:
            drawn = list(threads.map(self.progressive.initialise, sources))
        self.progressive.grow(torch.stack(drawn).to(self.parameters))
        self._learn_the_last()

    def _learn_the_last(self) -> None:
        self.parameters, self.buffers = self.progressive.columns[-1], self.progressive.buffers[-1]

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take a plain step with the newest column."""
        logits, tape = self.progressive.forward(batch.inputs)
        losses, gradient = mean_loss(logits, batch)
        self.progressive.descend(tape, *absorbed(gradient, self.learning_rate))
        return Mix(losses, None, torch.ones_like(losses))

    def predict(self, inputs: Tensor, columns: Tensor | None, task: int | None) -> Tensor:
        """Return the logits of the task's own column."""
        begun = len(self.progressive.columns)
        if task is None or not 0 <= task < begun:
            raise EngramError(
                f"task must be from 0 to {begun - 1}, a task that has its column, not {task}."
            )
        return self.progressive.predict(inputs, columns, task)

    def facts(self) -> dict[str, int]:
        """Return what the method holds, for one run: all columns so far, and their averages."""
        averages = sum(buffers.nbytes for buffers in self.progressive.buffers) // len(self._seeds)
        return {"parameters": self.progressive.size, "state_bytes": averages}

    def state_dict(self) -> dict[str, Any]:
        """Return every column, the frozen ones included."""
        columns, buffers = self.progressive.columns, self.progressive.buffers
        return {
            "columns": [column.clone() for column in columns],
            "buffers": [averages.clone() for averages in buffers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        self.progressive.load(state["columns"], state["buffers"])
        self._learn_the_last()


register(
    Entry(
        "prog-nn",
        ProgNn,
        MethodSettings,
        presets={
            "permuted-mnist": {"learning_rate": 0.1},
            "split-cifar": {"learning_rate": 0.03},
            "split-cub": {"learning_rate": 0.01},
            "split-awa": {"learning_rate": 0.03},
        },
        search=LEARNING_RATES,
        varies=tuple(LEARNING_RATES),
        targets=ALL_TARGETS,
    )
)
