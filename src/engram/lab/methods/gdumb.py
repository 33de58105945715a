"""GDumb: the row that tells what the memory is worth by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients import Mix
from engram.lab.engine import Batch, CudaGraphFunction, cross_entropy
from engram.lab.methods.method import FinishedTask, Setup
from engram.lab.methods.registry import Entry, register
from engram.lab.methods.replay import Replay, ReplaySettings, with_presets
from engram.lab.plan import generator
from engram.lab.settings import setting
from engram.rules import Current


@dataclass(frozen=True)
class GdumbSettings(ReplaySettings):
    """Settings of GDumb; ``learning_rate`` is that of its first epoch."""

    memory: Literal["ring", "sample", "reservoir", "fifo"] = setting(
        "sample", "which examples stay: sample is a random choice of each class of each task"
    )
    epochs: int = setting(30, "passes over the memory at the end of each task", least=1)
    memory_batch: int = setting(16, "examples of the memory in a step", least=1)


class Gdumb(Replay):
    """Remembers, and learns from nothing but what it remembers (Prabhu, Torr and Dokania 2020).

    While a task goes by, nothing is learned. When it has ended, a new network is trained on the
    memory alone, in ``epochs`` passes of SGD whose rate goes from ``learning_rate`` to 0 along a
    cosine. A replay method that is no better has learned nothing from the stream itself. Each
    example that is remembered is gone through many times: it is no method of one pass.
    """

    settings: GdumbSettings

    def __init__(self, setup: Setup, settings: GdumbSettings) -> None:
        super().__init__(setup, settings, Current())
        if self.optimizer is not None:
            raise EngramError(
                "optimizer must be sgd for gdumb, with a constant schedule: it takes plain steps "
                f"whose rate falls along a cosine, not those of {settings.optimizer!r}."
            )
        self.capturable = True
        self._seeds = setup.seeds
        self._gradient = torch.empty_like(self.parameters)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Look at the batch; what is to be remembered of it was staged."""
        logits, _ = self.network.forward(
            self.parameters, batch.inputs, self.buffers, training=False
        )
        losses, _ = cross_entropy(logits, batch)
        return Mix(losses, None, torch.zeros_like(losses))

    def end_task(self, task: int, finished: FinishedTask) -> None:
        """Train a new network on what is remembered."""
        super().end_task(task, finished)
        starts = [
            self.stream.initialise(self.network, seed).to(self.parameters) for seed in self._seeds
        ]
        self.parameters.copy_(torch.stack(starts))
        self.buffers.copy_(self.stream.initial_buffers(self.network, self.parameters))
        slots = [np.arange(ledger.available) for ledger in self.bank.ledgers]
        steps = self.settings.epochs * -(-max(map(len, slots)) // self.settings.memory_batch)
        shares = [0.5 * (1 + math.cos(math.pi * step / steps)) for step in range(steps)]
        rates = iter(self.parameters.new_tensor(shares).unsqueeze(1))
        # A step is short beside its launches.
        captured = self.captured and self.network.uncapturable(self.parameters, pads=True) is None
        learn = CudaGraphFunction(self._learn, capture=captured)
        for epoch in range(self.settings.epochs):
            orders = [
                generator(seed, "gdumb", task, epoch).permutation(mine)
                for seed, mine in zip(self._seeds, slots, strict=True)
            ]
            for rows, weights in _batches(orders, self.settings.memory_batch, self.parameters):
                learn(next(rates), rows, *weights)

    def _learn(self, rate: Tensor, rows: Tensor, weights: Tensor | None = None) -> Tensor:
        """Take a step on these slots of each run, [R, B], at a share of the learning rate."""
        batch = self.bank.held(rows)._replace(weights=weights)
        losses = self.rows.gradient(batch, self._gradient)
        self.rows.descend(self._gradient.mul_(rate), self.learning_rate)
        return losses


def _batches(
    orders: list[np.ndarray[tuple[int], np.dtype[np.int64]]], size: int, like: Tensor
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Cut each run's order into batches [R, B] and, where runs hold fewer, weights of the rows.

    Padding is the run's first example, of weight 0; a run that has no example left learns nothing.
    Rows are on the device of ``like``, weights of its dtype.
    """
    most = max(map(len, orders))
    padded = np.stack([np.resize(np.append(order, 0)[: len(order) or 1], most) for order in orders])
    inside = np.arange(most) < np.array([[len(order)] for order in orders])
    rows = torch.from_numpy(padded).to(like.device)
    for start in range(0, most, size):
        part = slice(start, start + size)
        there, weights = inside[:, part], list[Tensor]()
        if not there.all():
            shares = there / np.maximum(there.sum(1, keepdims=True), 1)
            weights.append(torch.from_numpy(shares).to(like))
        yield rows[:, part], weights


register(
    Entry(
        "gdumb",
        Gdumb,
        GdumbSettings,
        presets=with_presets({"permuted-mnist": {"learning_rate": 0.3}}),  # tuned: docs/results
        search={"learning_rate": (0.3, 0.1, 0.03, 0.01)},
        varies=("learning_rate",),
    )
)
