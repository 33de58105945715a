"""MER: experience replay in steps on single examples, of which Reptile keeps a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from engram.gradients import Mix
from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import Batch, ByRun, CudaGraphFunction, ExampleStore
from engram.lab.methods.method import Method, MethodSettings, Setup
from engram.lab.methods.registry import ALL_TARGETS, Entry, always, register
from engram.lab.networks import aligned_empty
from engram.lab.plan import generator
from engram.lab.settings import setting
from engram.memory import Ledger, Reservoir
from engram.meta import meta_steps


@dataclass(frozen=True)
class MerSettings(MethodSettings):
    """Settings of MER; ``batch_size`` decides only when the learning curve is measured.

    The defaults, with a learning rate of 0.03, are those that the authors' repository gives for
    20 permutations of MNIST with 1000 examples each, 5120 memories and Algorithm 6. With
    Algorithm 1 it gives gamma 1, beta 0.03, 100 draws and 10 batches.
    """

    algorithm: Literal["one-batch", "batches"] = setting(
        "one-batch",
        "one-batch: what was drawn first, the current example last (Algorithm 6); "
        "batches: several batches, the current example first in each (Algorithm 1)",
    )
    gamma: float = setting(0.1, "share of the way an example's steps went that is kept", above=0)
    beta: float = setting(0.03, "the same for each batch of algorithm batches", above=0)
    draws: int = setting(50, "k - 1, examples drawn from the memory for a batch", least=0)
    batches: int = setting(10, "s, batches for each example in algorithm batches", least=1)
    memory_size: int = setting(5120, "examples in the reservoir", least=1)


class Mer(Method):
    """Learns one example after another, each among draws from a reservoir (Riemer et al. 2019).

    To step through a sequence is one step of SGD on each single example of it, in order. For
    every incoming example, w₀ being the weights before it:

    - Algorithm 6: step through k − 1 draws, then the example; w <- w₀ + γ (w − w₀).
    - Algorithm 1: s times, from w_b: step through the example, then k − 1 draws;
      w <- w_b + β (w − w_b). Then w <- w₀ + γ (w − w₀).

    Then the example is offered to the reservoir. Draws are with replacement, fresh for each
    batch; a memory of fewer than k − 1 gives as many draws as it holds. Only the weights go back:
    a network's running averages keep what every step made of them.
    """

    single_examples = True
    settings: MerSettings

    def __init__(self, setup: Setup, settings: MerSettings) -> None:
        super().__init__(setup, settings)
        self._stream = stream = setup.stream
        self._gamma, self._beta = (setup.number(settings, name) for name in ("gamma", "beta"))
        # Beyond its examples there is nothing to keep.
        capacity = min(settings.memory_size, stream.examples * stream.tasks)
        self.memory = Reservoirs(capacity, setup.seeds, stream, self.parameters.device)
        self._step = aligned_empty(self.parameters, *self.parameters.shape)
        self._rounds = 1 if settings.algorithm == "one-batch" else settings.batches
        # Single steps are short beside their launches.
        self._learned = CudaGraphFunction(self._learn, capture=self.uncaptured() is None)
        self._marked = True  # or so it may be, where a task is gone on with

    def begin_task(self, task: int, labels: Tensor) -> None:
        """Draw what each example of the task will read, and whether it will be kept."""
        self.memory.plan(task, labels, self.settings.draws, self._rounds)
        # A stream that marks outputs may have put other marks in the place of the last task's.
        marked = self._stream.outputs(labels[:, :1]) is not None
        if marked or self._marked:
            self._learned.forget()
        self._marked = marked

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:
        """Learn the batch's examples one by one; the loss is their mean, each at its own step."""
        losses = []
        for i in range(batch.labels.shape[1]):
            place, one = step * self.settings.batch_size + i, slice(i, i + 1)
            rows = self.memory.rows(place)
            losses.append(self._learned(stored[:, one], batch.labels[:, one], rows))
            self.memory.write(place, stored[:, i], batch.labels[:, i])
        mean = torch.stack(losses).mean(0).unsqueeze(-1)
        return Mix(mean, None, torch.ones_like(mean))

    def _learn(self, stored: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """Learn an example, [R, 1, ...] and [R, 1], among draws from rows [R, rounds, count]."""
        example = self._stream.batch(stored, labels)
        losses = meta_steps(
            example,
            map(self.memory.drawn, rows.unbind(1)),
            step=self._step_on,
            mark=self.parameters.clone,
            keep=self._keep,
            algorithm=self.settings.algorithm,
            gamma=self._gamma,
            beta=self._beta,
        )
        return sum((each / self._rounds for each in losses[1:]), losses[0] / self._rounds)

    def _step_on(self, example: Batch) -> Tensor:
        """Take a step of SGD on a single example of each run; return the losses [R]."""
        loss = self.rows.gradient(example, self._step)
        self.rows.descend(self._step, self.learning_rate)
        return loss

    def _keep(self, start: Tensor, share: ByRun) -> None:
        """Reptile: go back to ``start`` and from there only a share of the way."""
        torch.lerp(start, self.parameters, share, out=self.parameters)

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on, the reservoir included."""
        return super().state_dict() | {"memory": self.memory.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"])
        self._learned.forget()  # the reservoir's store is another one
        self._marked = True

    def facts(self) -> dict[str, int]:
        """Return what the method holds, for one run."""
        return super().facts() | {"memory_bytes": self.memory.nbytes}


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
        self.store: ExampleStore | None = None  # the row behind the last takes what nobody keeps
        self._seeds = seeds
        self._stream = stream
        self._device = device
        runs = np.arange(len(seeds), dtype=np.int32)  # of which many draws take half the memory
        self._first = (capacity + 1) * runs.reshape(-1, 1)  # each run's first row of the store
        self._planned: dict[str, Any] | None = None  # the last call of plan(), and what was before

    @property
    def nbytes(self) -> int:
        """Bytes that one run's examples take."""
        return 0 if self.store is None else self.store.row_nbytes * self.capacity

    def plan(self, task: int, labels: Tensor, draws: int, rounds: int) -> None:
        """Draw for a task with labels [R, N]: ``rounds`` times ``draws`` slots for each example.

        Of several passes over a task's examples the first alone offers them to the reservoir.
        """
        before = [ledger.state_dict() for ledger in self.ledgers]
        asked = {"task": task, "labels": labels, "draws": draws, "rounds": rounds}
        self._planned = asked | {"ledgers": before}
        coming = labels.cpu().numpy()
        offered = coming.shape[1] // self._stream.passes
        # Every run holds the same number before an example: all that came, or its capacity.
        came = np.minimum(np.arange(coming.shape[1]), offered)
        held = np.minimum(len(self.ledgers[0]) + came, self.capacity)
        some = held > 0
        below = held[some].reshape(-1, 1, 1)
        size = (len(below), rounds, draws)
        reads = np.zeros((*coming.shape, rounds, draws), np.int32)
        writes = np.full_like(coming, -1)
        for run, (ledger, seed) in enumerate(zip(self.ledgers, self._seeds, strict=True)):
            source = generator(seed, "mer", task)
            reads[run, some] = source.integers(below, size=size, dtype=np.int32)
            # One by one: of a batch, a ledger says only who is left when all of it has come.
            first = coming[run, :offered]
            writes[run, :offered] = [ledger.add(task, [label])[0] for label in first]
        self._counts: list[int] = np.minimum(held, draws).tolist()
        self._kept: list[bool] = np.any(writes >= 0, axis=0).tolist()
        reads += self._first[..., np.newaxis, np.newaxis]
        self._reads = torch.from_numpy(reads).to(self._device)
        slots = np.where(writes < 0, self.capacity, writes) + self._first
        self._writes = torch.from_numpy(slots).to(self._device)

    def rows(self, place: int) -> Tensor:
        """Return the rows that example number ``place`` of the task reads, [R, rounds, count].

        As many in a round as were asked for, or as many as are held where those are fewer.
        """
        return self._reads[:, place, :, : self._counts[place]]

    def drawn(self, rows: Tensor) -> list[Batch]:
        """Return what is held in rows [R, count], one by one."""
        if self.store is None or not rows.shape[1]:
            return []
        return _singles(self._stream.batch(*self.store.read(rows, "inputs", "labels")))

    def write(self, place: int, inputs: Tensor, labels: Tensor) -> None:
        """Store example number ``place`` of the task, [R, ...] and [R], where it is kept."""
        if not self._kept[place]:
            return
        new = {"inputs": inputs.unsqueeze(1), "labels": labels.unsqueeze(1)}
        if self.store is None:
            self.store = ExampleStore.zeros(self.capacity + 1, new)
        self.store.write(self._writes[:, place, None], **new)

    def state_dict(self) -> dict[str, Any]:
        """Return what is held, and the plan of the current task as it can be drawn again."""
        held = None if self.store is None else self.store.copied()
        return {"table": held, "planned": self._planned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        self.store = None
        if state["table"] is not None:
            self.store = ExampleStore.loaded(state["table"], Examples._fields, self._device)
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
            target=batch.target,
            targets=None if batch.targets is None else batch.targets[:, part],
        )
        for part in parts
    ]


register(
    Entry(
        "mer",
        Mer,
        MerSettings,
        presets={"permuted-mnist": {"learning_rate": 0.03}},
        search={"learning_rate": (0.1, 0.03, 0.01), "gamma": (0.03, 0.1, 0.3, 1)},
        varies=("learning_rate", "gamma", "beta"),
        targets=ALL_TARGETS,
        boundless=always,
    )
)
