"""The episodic memories of R stacked runs, resident on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from engram.engine import _reads
from engram.engine._planned import Planned
from engram.memory import Ledger
from engram.models import Branches
from engram.streams import Batch, Stream


class Bank:
    """What R runs remember: one ledger each, one table of examples for all.

    The ledgers decide who stays; they see labels and never an image. Which examples every step
    of a task reads is drawn when the task begins, so nothing is chosen inside the loop.
    """

    def __init__(
        self,
        ledgers: Sequence[Ledger],
        seeds: Sequence[int],
        capacity: int,
        stream: Stream,
        device: torch.device,
    ) -> None:
        self.ledgers = list(ledgers)
        self.seeds = tuple(seeds)
        self.stream = stream
        self.device = device
        self.planned: Planned | None = None
        self._capacity = capacity
        self._table: Batch | None = None  # inputs and labels [R * (capacity + 1), ...], as stored
        self._request: dict[str, Any] = {}  # the last call of plan(), and the ledgers before it

    @property
    def nbytes(self) -> int:
        """Bytes that one run's examples take."""
        if self._table is None:
            return 0
        slot = (self._table.inputs.nbytes + self._table.labels.nbytes) // len(self._table.labels)
        return slot * self._capacity

    def plan(self, task: int, labels: Tensor, batch_size: int, count: int, per_task: bool) -> None:
        """Plan a task with these labels to come, [R, N]: what its steps read and write.

        Every step reads ``count`` of all available examples or, with ``per_task``, up to that
        many of each finished task, a part of the batch for each.
        """
        self._request = {
            "ledgers": [ledger.state_dict() for ledger in self.ledgers],
            "task": task,
            "labels": labels,
            "batch_size": batch_size,
            "count": count,
            "per_task": per_task,
        }
        coming = labels.cpu().numpy()
        if self.ledgers[0].policy.include_current:
            reads, writes = _reads.growing(
                self.ledgers, self.seeds, task, coming, batch_size, count
            )
        else:
            steps = -(-coming.shape[1] // batch_size)
            reads = (
                _reads.by_task(self.ledgers, count)
                if per_task
                else _reads.pooled(self.ledgers, self.seeds, task, steps, count, self.device)
            )
            writes = _reads.kept(self.ledgers, task, coming)
        self.planned = Planned(reads, writes, batch_size, self._capacity + 1, self.device)

    def reference(self, step: int) -> Batch | None:
        """Return the reference batch of a step, as planned."""
        planned = self.planned.reads(step) if self.planned else None
        if self._table is None or planned is None:
            return None
        rows, weights, groups = planned
        inputs = self._table.inputs.index_select(0, rows.reshape(-1))
        labels = self._table.labels.index_select(0, rows.reshape(-1))
        batch = self.stream.batch(
            inputs.view(*rows.shape, *inputs.shape[1:]), labels.view(rows.shape)
        )
        return batch._replace(weights=weights, groups=groups)

    def write(self, step: int, inputs: Tensor, labels: Tensor) -> None:
        """Store the batch of a step, inputs [R, B, ...] as stored, where the plan wants it."""
        rows = None if self.planned is None else self.planned.writes(step)
        if rows is None:
            return
        table = self._table or self._allocate(inputs, labels)
        index = rows[:, : labels.shape[1]].reshape(-1)  # a task's last batch may be short
        table.inputs.index_copy_(0, index, inputs.flatten(0, 1))
        table.labels.index_copy_(0, index, labels.flatten(0, 1))

    @contextmanager
    def writing(self, step: int, inputs: Tensor, labels: Tensor) -> Iterator[None]:
        """Store the batch of a step beside the step itself, which has read its reference batch."""
        branches = Branches(self.device, "memory")
        with branches.branch():
            self.write(step, inputs, labels)
        yield
        branches.join()

    def end_task(self) -> None:
        """Make everything held available to the tasks that follow."""
        for ledger in self.ledgers:
            ledger.end_task()

    def state_dict(self) -> dict[str, Any]:
        """Return what is held, and the plan of the task in hand as it can be drawn again."""
        table = None if self._table is None else [part.clone() for part in self._table[:2]]
        ledgers = [ledger.state_dict() for ledger in self.ledgers]
        return {"request": self._request, "table": table, "ledgers": ledgers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        if state["request"]:
            request = state["request"] | {"labels": state["request"]["labels"].to(self.device)}
            self._load_ledgers(request.pop("ledgers"))
            self.plan(**request)
        self._load_ledgers(state["ledgers"])
        self._table = None
        if state["table"] is not None:
            self._table = Batch(*(part.to(self.device, copy=True) for part in state["table"]))

    def _load_ledgers(self, states: Sequence[dict[str, Any]]) -> None:
        for ledger, state in zip(self.ledgers, states, strict=True):
            ledger.load_state_dict(state)

    def _allocate(self, inputs: Tensor, labels: Tensor) -> Batch:
        rows = len(self.ledgers) * (self._capacity + 1)
        self._table = Batch(inputs.new_zeros(rows, *inputs.shape[2:]), labels.new_zeros(rows))
        return self._table
