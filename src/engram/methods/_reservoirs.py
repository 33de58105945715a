"""The reservoirs of R stacked runs, read and written one example at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.engine import Batch
from engram.memory import Ledger, Reservoir
from engram.plan import generator
from engram.streams import Stream


class Reservoirs:
    """A uniform sample of all that each run has learned, and draws from it with replacement.

    An example may read what was held before it came, and is offered to the reservoir after it
    was learned: kept while there is room, later with probability capacity / examples so far, in
    the place of any. Both are decided for a whole task when it begins.
    """

    def __init__(
        self,
        capacity: int,
        seeds: Sequence[int],
        stream: Stream,
        device: torch.device,
    ) -> None:
        self.capacity = capacity
        self.ledgers = [Ledger(Reservoir(capacity), seed=seed) for seed in seeds]
        self.table: Batch | None = None  # [R, capacity + 1, ...]; the last takes what nobody keeps
        self._seeds = seeds
        self._stream = stream
        self._device = device
        self._runs = torch.arange(len(seeds), device=device).unsqueeze(-1)
        self._planned: dict[str, Any] | None = None  # the last call of plan(), and what was before

    @property
    def nbytes(self) -> int:
        """Bytes that one run's examples take."""
        if self.table is None:
            return 0
        places = self.table.labels.numel()
        return (self.table.inputs.nbytes + self.table.labels.nbytes) // places * self.capacity

    def plan(self, task: int, labels: Tensor, draws: int, rounds: int) -> None:
        """Draw for a task with labels [R, N]: ``rounds`` times ``draws`` slots for each example."""
        before = [ledger.state_dict() for ledger in self.ledgers]
        asked = {"task": task, "labels": labels, "draws": draws, "rounds": rounds}
        self._planned = asked | {"ledgers": before}
        coming = labels.cpu().numpy()
        # Every run holds the same number before an example: all that came, or its capacity.
        held = np.minimum(len(self.ledgers[0]) + np.arange(coming.shape[1]), self.capacity)
        some = held > 0
        below = held[some].reshape(-1, 1, 1)
        size = (len(below), rounds, draws)
        reads = np.zeros((*coming.shape, rounds, draws), np.int32)
        writes = np.empty_like(coming)
        for run, (ledger, seed) in enumerate(zip(self.ledgers, self._seeds, strict=True)):
            source = generator(seed, "mer", task)
            reads[run, some] = source.integers(below, size=size, dtype=np.int32)
            # One by one: of a batch, a ledger tells only who is left when all of it has come.
            writes[run] = [ledger.add(task, [label])[0] for label in coming[run]]
        self._counts: list[int] = np.minimum(held, draws).tolist()
        self._kept: list[bool] = np.any(writes >= 0, axis=0).tolist()
        self._reads = torch.from_numpy(reads).to(self._device)
        slots = np.where(writes < 0, self.capacity, writes)
        self._writes = torch.from_numpy(slots).to(self._device)

    def slots(self, place: int) -> Tensor:
        """Return the slots that example number ``place`` of the task reads, [R, rounds, count].

        As many in a round as were asked for, or as many as are held where those are fewer.
        """
        return self._reads[:, place, :, : self._counts[place]]

    def drawn(self, slots: Tensor) -> list[Batch]:
        """Return what is held in slots [R, count], one by one."""
        if self.table is None or not slots.shape[1]:
            return []
        index = (self._runs, slots)
        return _singles(self._stream.batch(self.table.inputs[index], self.table.labels[index]))

    def write(self, place: int, inputs: Tensor, labels: Tensor) -> None:
        """Store example number ``place`` of the task, [R, ...] and [R], where it is kept."""
        if not self._kept[place]:
            return
        if self.table is None:
            shape = (len(labels), self.capacity + 1)
            examples = inputs.new_zeros(*shape, *inputs.shape[1:])
            self.table = Batch(examples, labels.new_zeros(shape))
        slots = self._writes[:, place]
        self.table.inputs[self._runs[:, 0], slots] = inputs
        self.table.labels[self._runs[:, 0], slots] = labels

    def state_dict(self) -> dict[str, Any]:
        """Return what is held, and the plan of the task in hand as it can be drawn again."""
        table = None if self.table is None else [part.clone() for part in self.table[:2]]
        return {"table": table, "planned": self._planned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        self.table = None
        if state["table"] is not None:
            self.table = Batch(*(part.to(self._device, copy=True) for part in state["table"]))
        if state["planned"] is not None:
            planned = dict(state["planned"])
            for ledger, before in zip(self.ledgers, planned.pop("ledgers"), strict=True):
                ledger.load_state_dict(before)
            self.plan(**planned)


def _singles(batch: Batch) -> list[Batch]:
    """Cut a batch [R, B, ...] into B batches of one example."""
    parts = [slice(i, i + 1) for i in range(batch.labels.shape[1])]
    return [
        Batch(
            batch.inputs[:, part],
            batch.labels[:, part],
            outputs=None if batch.outputs is None else batch.outputs[:, part],
        )
        for part in parts
    ]
