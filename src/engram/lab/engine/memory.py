"""Examples that R stacked runs hold on the device: the store, and the memory of replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.lab.benchmarks import Batch, Examples, Stream
from engram.lab.engine.cuda_graphs import unchecked
from engram.lab.engine.replay_plan import (
    ReplayPlan,
    draw_by_task,
    kept_slots,
    read_by_task,
    read_growing,
    read_pooled,
)
from engram.memory import Ledger, Selective
from engram.memory.policies import describe

_EXAMPLES = Examples._fields
_DESCRIBED = 1_000  # examples that a policy describes at once


class ExampleStore:
    """Examples of R runs in columns by name: inputs, labels, logits, whatever a policy needs.

    Every column is [R, n, ...], one row for each example of each run. Who is held, and where, is
    a policy's to say. Where ``rows`` are asked for, they count through all runs, as `flat` makes
    them of each run's own.

    >>> store = ExampleStore({"labels": torch.tensor([[5, 6], [7, 8]])})
    >>> rows = store.flat(torch.tensor([[1], [0]]))  # the first run's second, the second's first
    >>> store.write(rows, labels=torch.tensor([[4], [9]]))
    >>> store["labels"].tolist(), store.read(rows, "labels")[0].tolist()
    ([[5, 4], [9, 8]], [[4], [9]])
    """

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        self.columns = dict(columns)

    @classmethod
    def zeros(cls, length: int, like: Mapping[str, Tensor]) -> ExampleStore:
        """Return a store of so many empty rows for each run, for columns [R, n, ...] like these."""
        return cls(
            {
                name: column.new_zeros(len(column), length, *column.shape[2:])
                for name, column in like.items()
            }
        )

    @classmethod
    def loaded(
        cls,
        saved: Mapping[str, Tensor] | Sequence[Tensor],
        names: Sequence[str],
        device: torch.device,
    ) -> ExampleStore:
        """Return a store of copies of saved columns: by name or, from older versions, in order."""
        columns = saved if isinstance(saved, Mapping) else dict(zip(names, saved, strict=True))
        return cls({name: column.to(device, copy=True) for name, column in columns.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    @property
    def length(self) -> int:
        """The number of rows of each run."""
        return next(iter(self.columns.values())).shape[1]

    @property
    def row_nbytes(self) -> int:
        """Bytes that one example takes."""
        return sum(
            column.nbytes // max(1, column.shape[0] * column.shape[1])
            for column in self.columns.values()
        )

    def flat(self, rows: Tensor) -> Tensor:
        """Turn rows of each run, [R, ...], into rows of the store."""
        first = self.length * torch.arange(len(rows), device=rows.device)
        return rows + first.view(-1, *[1] * (rows.ndim - 1))

    def read(self, rows: Tensor, *names: str) -> list[Tensor]:
        """Return some columns of rows [R, B], as [R, B, ...] each."""
        found = (
            self.columns[name].flatten(0, 1).index_select(0, rows.reshape(-1)) for name in names
        )
        return [column.view(*rows.shape, *column.shape[1:]) for column in found]

    def write(self, rows: Tensor, **values: Tensor) -> None:
        """Put values [R, B, ...] into some columns of rows [R, B], none of which occurs twice."""
        with unchecked():
            for name, new in values.items():
                self.columns[name].flatten(0, 1)[rows.reshape(-1)] = new.flatten(0, 1)

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy all columns of rows [m] to other rows [m]."""
        for column in self.columns.values():
            flat = column.flatten(0, 1)
            flat.index_copy_(0, target, flat.index_select(0, source))

    def part(self, rows: slice) -> ExampleStore:
        """Return these rows of each run, as views."""
        return ExampleStore({name: column[:, rows] for name, column in self.columns.items()})

    def select(self, rows: Tensor) -> ExampleStore:
        """Return a store of copies of each run's rows [R, m]."""
        return ExampleStore(
            dict(zip(self.columns, self.read(self.flat(rows), *self.columns), strict=True))
        )

    def joined(self, others: ExampleStore) -> ExampleStore:
        """Return a store of these examples and, behind them, the others."""
        return ExampleStore(
            {name: torch.cat([column, others[name]], 1) for name, column in self.columns.items()}
        )

    def copied(self) -> dict[str, Tensor]:
        """Return copies of all columns, for a checkpoint."""
        return {name: column.clone() for name, column in self.columns.items()}


class Bank:
    """What R runs remember for replay: one ledger each, one store of examples for all.

    The ledgers decide who stays; they see labels and never an image. Which examples every step
    of a task reads is drawn when the task begins, so nothing is chosen inside the loop. Nothing is
    copied there either: a task's examples lie in the store behind those that are held, and all that
    is planned is rows of it. Once the task has ended, those of them that are held move to the
    front, and their place is the next task's.
    """

    def __init__(
        self,
        ledgers: Sequence[Ledger],
        seeds: Sequence[int],
        capacity: int,
        stream: Stream,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.ledgers = list(ledgers)
        self.seeds = tuple(seeds)
        self.stream = stream
        self.device = device
        self.dtype = dtype  # of the losses
        self.planned: ReplayPlan | None = None
        self._capacity = capacity
        self._store: ExampleStore | None = None  # of capacity + N rows for each run
        self._staged = False  # whether the current task's examples are there
        self._written: dict[str, Tensor] | None = None  # what a checkpoint has of theirs
        self._request: dict[str, Any] = {}  # the last call of plan(), and the ledgers before it

    @property
    def nbytes(self) -> int:
        """Bytes that one run's examples take."""
        return 0 if self._store is None else self._store.row_nbytes * self._capacity

    def stage_examples(self, examples: Examples, **more: Tensor) -> Examples:
        """Put the examples of a task to come into the store, and return them as they lie there.

        There may be ``more`` columns, [R, N, ...] each, beside their inputs and labels; a method
        that writes into one of them later finds what it wrote in `read`.
        """
        columns = {**examples._asdict(), **more}
        length = self._capacity + examples.labels.shape[1]
        if self._store is None or self._store.length != length:
            self._make_room(columns, length)
        assert self._store is not None
        staged = self._store.part(slice(self._capacity, None))
        for name, new in columns.items():
            staged[name].copy_(new)
        for name, column in (self._written or {}).items():
            staged[name].copy_(column)
        self._written = None
        self._staged = True
        return Examples(staged["inputs"], staged["labels"])

    def plan(
        self,
        task: int,
        labels: Tensor,
        batch_size: int,
        count: int,
        per_task: bool,
        draws: int = 1,
        described: Tensor | None = None,
        sampled: bool = False,
    ) -> None:
        """Plan a task with these labels to come, [R, N]: what its steps read, and what stays.

        Every step reads ``count`` of all available examples or, with ``per_task``, up to that
        many of each past task, a part of the batch for each: a draw where they are ``sampled``,
        else the last of them. Of several ``draws`` each is a
        part as well, independent of the others. Of several passes over a task's examples the first
        alone offers them to the memory, which so holds each of them once. A policy that looks at
        the examples is shown those that are staged, unless what it said of them is given.
        """
        more = {"draws": draws if draws > 1 else 0, "sampled": sampled}
        self._request = {
            "ledgers": [ledger.state_dict() for ledger in self.ledgers],
            "task": task,
            "labels": labels.clone(),  # which may lie in the store
            "batch_size": batch_size,
            "count": count,
            "per_task": per_task,
        } | {name: value for name, value in more.items() if value}
        self.planned = None  # which was for other examples than those that are staged
        policy = self.ledgers[0].policy
        if isinstance(policy, Selective):
            described = self._describe(policy) if described is None else described
            self._request["described"] = described
        said = None if described is None else described.cpu().numpy()
        visited = self.stream.groups(labels).cpu().numpy()
        coming = visited[:, : visited.shape[1] // self.stream.passes]
        if self.ledgers[0].policy.include_current:
            reads, kept = read_growing(
                self.ledgers,
                self.seeds,
                task,
                coming,
                batch_size,
                count,
                self._capacity,
                passes=self.stream.passes,
                draws=draws,
                described=said,
                per_task=per_task,
                sampled=sampled,
            )
        else:
            steps = -(-visited.shape[1] // batch_size)
            if per_task and sampled:
                reads = draw_by_task(self.ledgers, self.seeds, task, steps, count, self._capacity)
            elif per_task:
                reads = read_by_task(self.ledgers, count, self._capacity)
            else:
                reads = read_pooled(
                    self.ledgers,
                    self.seeds,
                    task,
                    steps * draws,
                    count,
                    self._capacity,
                    self.device,
                )
            kept = kept_slots(self.ledgers, task, coming, said)
        if reads is not None and draws > 1:
            reads = reads.in_parts(draws)
        self.planned = ReplayPlan(reads, kept, self._capacity, self.device, self.dtype)

    def _describe(self, policy: Selective) -> Tensor:
        """Return what a policy says of the staged examples, [R, N, k], on the host."""
        staged = self._staged_store().part(slice(self._capacity, None))
        once = slice(staged.length // self.stream.passes)  # the first pass has them all, in order
        staged, said = staged.part(once), []
        for stored, labels in zip(staged["inputs"], staged["labels"], strict=True):
            parts = [
                describe(policy, (self.stream.normalise(few.unsqueeze(0))[0], of), len(of))
                for few, of in zip(stored.split(_DESCRIBED), labels.split(_DESCRIBED), strict=True)
            ]
            said.append(torch.from_numpy(np.concatenate(parts)))
        return torch.stack(said)

    def grow_old(self, task: int) -> None:
        """Let the ledgers go of what is too old for a task that is about to be planned."""
        for run, ledger in enumerate(self.ledgers):
            moves = ledger.grow_old(task)
            if moves is not None and self._store is not None and len(moves.source):
                first = run * self._store.length
                source, target = (
                    torch.from_numpy(first + rows).to(self.device)
                    for rows in (moves.source, moves.target)
                )
                self._store.move(source, target)

    def reference(self, step: int) -> Batch | None:
        """Return the reference batch of a step, as planned."""
        found = self.read(step, "inputs", "labels")
        if found is None:
            return None
        (inputs, labels), weights, groups = found
        batch = self.stream.batch(inputs, labels)
        return batch._replace(weights=weights, groups=groups)

    def read(self, step: int, *names: str) -> tuple[list[Tensor], Tensor | None, int] | None:
        """Return columns of what a step reads, [R, B, ...] each, its weights and its groups."""
        store = self._staged_store()
        planned = self.planned.reads(step) if self.planned else None
        if planned is None:
            return None
        rows, weights, groups = planned
        return store.read(rows, *names), weights, groups

    def write(self, step: int, **columns: Tensor) -> None:
        """Write columns of a step's batch, [R, B, ...] each, which were staged by their names.

        Whoever reads an example later finds them with it.
        """
        store = self._staged_store()
        position = self.planned.position if self.planned else None
        first = (step if position is None else position) * self._request["batch_size"]
        count = next(iter(columns.values())).shape[1]
        places = torch.arange(count, device=self.device) + self._capacity + first
        store.write(store.flat(places.expand(len(self.ledgers), count)), **columns)

    def staged(self, name: str) -> Tensor | None:
        """Return a copy of a column of the current task's examples; None between tasks."""
        if self._store is None or not self._staged:
            return None
        return self._store.part(slice(self._capacity, None))[name].clone()

    def held(self, slots: Tensor) -> Batch:
        """Return what is held in slots [R, B] of each run, between tasks."""
        assert self._store is not None
        inputs, labels = self._store.read(self._store.flat(slots), "inputs", "labels")
        return self.stream.batch(inputs, labels)

    def end_task(self) -> None:
        """Make everything held available to the tasks that follow."""
        if self.planned is not None:
            target, source = self.planned.moves
            self._staged_store().move(source, target)
        self._staged = False
        for ledger in self.ledgers:
            ledger.end_task()

    def state_dict(self) -> dict[str, Any]:
        """Return what is held, and the plan of the current task as it can be drawn again."""
        ledgers = [ledger.state_dict() for ledger in self.ledgers]
        state = {"request": self._request, "table": self._held(), "ledgers": ledgers}
        if self._staged and (written := self._staged_more()):
            state["staged"] = written
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken; the current task is to be staged again."""
        if state["request"]:
            request = state["request"] | {"labels": state["request"]["labels"].to(self.device)}
            self._load_ledgers(request.pop("ledgers"))
            self.plan(**request)
        self._load_ledgers(state["ledgers"])
        self._store, self._staged = None, False
        self._written = state.get("staged")
        if state["table"] is not None:
            held = ExampleStore.loaded(state["table"], Examples._fields, self.device)
            shape = len(self.ledgers), self._capacity
            if any(column.shape[:2] != shape for column in held.columns.values()):
                raise EngramError(
                    f"The state must have {self._capacity} examples in memory for each of "
                    f"{len(self.ledgers)} runs, which that of an earlier version has not."
                )
            self._store = held

    def _load_ledgers(self, states: Sequence[dict[str, Any]]) -> None:
        for ledger, state in zip(self.ledgers, states, strict=True):
            ledger.load_state_dict(state)

    def _staged_store(self) -> ExampleStore:
        if self._store is None or not self._staged:
            raise EngramError(
                "A task's examples must be staged before its steps: whoever trains a method calls "
                "its `stage_examples`."
            )
        length = self._store.length
        if self.planned is not None and self.planned.length != length:
            planned, staged = (each - self._capacity for each in (self.planned.length, length))
            raise EngramError(
                f"The examples staged must be as many as planned: {planned}, not {staged}."
            )
        return self._store

    def _staged_more(self) -> dict[str, Tensor]:
        """Return copies of the columns that are staged beside inputs and labels."""
        staged = self._staged_store().part(slice(self._capacity, None))
        return {name: each for name, each in staged.copied().items() if name not in _EXAMPLES}

    def _held(self) -> dict[str, Tensor] | None:
        """Return copies of the columns that are held, [R, capacity, ...]."""
        return None if self._store is None else self._store.part(slice(self._capacity)).copied()

    def _make_room(self, like: Mapping[str, Tensor], length: int) -> None:
        """Give the store so many rows for each run; what is held stays."""
        held = self._held()
        self._store = None  # its memory may be needed
        self._store = ExampleStore.zeros(length, like)
        for name, column in (held or {}).items():
            self._store[name][:, : self._capacity] = column
