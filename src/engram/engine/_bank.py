"""The episodic memories of R stacked runs, resident on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engram.engine import _kept, _reads
from engram.engine._planned import Planned
from engram.errors import EngramError
from engram.memory import Ledger
from engram.streams import Batch, Examples, Stream


class Bank:
    """What R runs remember: one ledger each, one table of examples for all.

    The ledgers decide who stays; they see labels and never an image. Which examples every step
    of a task reads is drawn when the task begins, so nothing is chosen inside the loop. Nothing is
    copied there either: a task's examples lie in the table behind those that are held, and all that
    is planned is indices into it. Once the task has ended, those of them that are held move to the
    front, and their room is the next task's.
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
        self._table: Examples | None = None  # [R, capacity + N, ...], as stored
        self._staged = False  # whether the current task's examples are there
        self._request: dict[str, Any] = {}  # the last call of plan(), and the ledgers before it

    @property
    def nbytes(self) -> int:
        """Bytes that one run's examples take."""
        if self._table is None:
            return 0
        slot = sum(part.nbytes for part in self._table) // self._table.labels.numel()
        return slot * self._capacity

    def stage_examples(self, examples: Examples) -> Examples:
        """Put the examples of a task to come into the table, and return them as they lie there."""
        length = self._capacity + examples.labels.shape[1]
        if self._table is None or self._table.labels.shape[1] != length:
            self._make_room(examples, length)
        assert self._table is not None
        staged = Examples(*(part[:, self._capacity :] for part in self._table))
        for part, new in zip(staged, examples, strict=True):
            part.copy_(new)
        self._staged = True
        return staged

    def plan(self, task: int, labels: Tensor, batch_size: int, count: int, per_task: bool) -> None:
        """Plan a task with these labels to come, [R, N]: what its steps read, and what stays.

        Every step reads ``count`` of all available examples or, with ``per_task``, up to that
        many of each finished task, a part of the batch for each.
        """
        self._request = {
            "ledgers": [ledger.state_dict() for ledger in self.ledgers],
            "task": task,
            "labels": labels.clone(),  # which may lie in the table
            "batch_size": batch_size,
            "count": count,
            "per_task": per_task,
        }
        coming = labels.cpu().numpy()
        if self.ledgers[0].policy.include_current:
            reads, kept = _reads.growing(
                self.ledgers, self.seeds, task, coming, batch_size, count, self._capacity
            )
        else:
            steps = -(-coming.shape[1] // batch_size)
            reads = (
                _reads.by_task(self.ledgers, count, self._capacity)
                if per_task
                else _reads.pooled(
                    self.ledgers, self.seeds, task, steps, count, self._capacity, self.device
                )
            )
            kept = _kept.kept(self.ledgers, task, coming)
        self.planned = Planned(reads, kept, self._capacity, self.device)

    def reference(self, step: int) -> Batch | None:
        """Return the reference batch of a step, as planned."""
        table = self._whole_table()
        planned = self.planned.reads(step) if self.planned else None
        if planned is None:
            return None
        rows, weights, groups = planned
        inputs, labels = (part.flatten(0, 1).index_select(0, rows.reshape(-1)) for part in table)
        batch = self.stream.batch(
            inputs.view(*rows.shape, *inputs.shape[1:]), labels.view(rows.shape)
        )
        return batch._replace(weights=weights, groups=groups)

    def end_task(self) -> None:
        """Make everything held available to the tasks that follow."""
        if self.planned is not None:
            places, rows = self.planned.moves
            for part in self._whole_table():
                flat = part.flatten(0, 1)
                flat.index_copy_(0, places, flat.index_select(0, rows))
        self._staged = False
        for ledger in self.ledgers:
            ledger.end_task()

    def state_dict(self) -> dict[str, Any]:
        """Return what is held, and the plan of the current task as it can be drawn again."""
        ledgers = [ledger.state_dict() for ledger in self.ledgers]
        return {"request": self._request, "table": self._held(), "ledgers": ledgers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken; the current task is to be staged again."""
        if state["request"]:
            request = state["request"] | {"labels": state["request"]["labels"].to(self.device)}
            self._load_ledgers(request.pop("ledgers"))
            self.plan(**request)
        self._load_ledgers(state["ledgers"])
        self._table, self._staged = None, False
        if state["table"] is not None:
            held = Examples(*(part.to(self.device, copy=True) for part in state["table"]))
            shape = len(self.ledgers), self._capacity
            if any(part.shape[:2] != shape for part in held):
                raise EngramError(
                    f"The state must have {self._capacity} examples in memory for each of "
                    f"{len(self.ledgers)} runs, which that of an earlier version has not."
                )
            self._table = held

    def _load_ledgers(self, states: Sequence[dict[str, Any]]) -> None:
        for ledger, state in zip(self.ledgers, states, strict=True):
            ledger.load_state_dict(state)

    def _whole_table(self) -> Examples:
        if self._table is None or not self._staged:
            raise EngramError(
                "A task's examples must be staged before its steps: whoever trains a method calls "
                "its `stage_examples`."
            )
        length = self._table.labels.shape[1]
        if self.planned is not None and self.planned.length != length:
            planned, staged = (each - self._capacity for each in (self.planned.length, length))
            raise EngramError(
                f"The examples staged must be as many as planned: {planned}, not {staged}."
            )
        return self._table

    def _held(self) -> list[Tensor] | None:
        """Return copies of the inputs and labels that are held, [R, capacity, ...]."""
        return self._table and [part[:, : self._capacity].clone() for part in self._table]

    def _make_room(self, like: Examples, length: int) -> None:
        """Give the table so many rows for each run; what is held stays."""
        held = self._held()
        self._table = None  # its room may be needed
        shape = len(self.ledgers), length
        self._table = Examples(
            like.inputs.new_zeros(*shape, *like.inputs.shape[2:]), like.labels.new_zeros(shape)
        )
        for part, before in zip(self._table, held or (), strict=False):
            part[:, : self._capacity] = before
