"""Early stopping: a task ends once its passes make the held out part no better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engram.lab.benchmarks import Stream
from engram.lab.methods import Method
from engram.lab.protocol.evaluation import held_out_score


class EarlyStopping:
    """Where each of R runs stops in a task, and its state as it was after its best pass.

    After a pass every run is scored on what the stream holds out of the task's training. A run
    stops after ``patience`` passes in a row that were no better than its best, of equals the
    first; the task ends when all have stopped. Then every run goes back to its best pass: its
    weights, its running averages and whatever tensors the method names in `Method.state`. What a
    run that had stopped did while it waited for the others is so forgotten, and it is the same
    alone and among others. A memory holds the same in any case: the first pass alone fills it.
    """

    def __init__(self, method: Method, stream: Stream, passes: int, batch_size: int) -> None:
        self._method, self._stream = method, stream
        self._number, self._size = passes, batch_size
        self._runs = len(stream.seeds)
        self._tasks, self._sum = 0, torch.zeros(self._runs, dtype=torch.int64)  # that have ended
        self._ends = dict[int, int]()  # pass, by the step that it ends with
        self._forget()

    def _forget(self) -> None:
        self._best = torch.full((self._runs,), -torch.inf, dtype=torch.float64)
        self._at = torch.zeros(self._runs, dtype=torch.int64)  # the best pass
        self._stopped = torch.zeros(self._runs, dtype=torch.bool)
        self._taken = torch.zeros(self._runs, dtype=torch.int64)  # passes, until it stopped
        self._kept = dict[str, Tensor]()

    def begin_task(self, examples: int, *, resumed: bool) -> None:
        """Look after the passes of a task of so many examples."""
        every = range(1, self._number + 1)
        self._ends = {-(-number * examples // self._size): number for number in every}
        if not resumed:
            self._forget()

    def next_end(self, step: int) -> int:
        """Return how many steps there are before the next look, from the task's beginning."""
        return min(end for end in self._ends if end > step)

    def ended(self, step: int, tasks: Sequence[int]) -> bool:
        """Look, where a pass ends with this step; return whether all runs have stopped."""
        if step not in self._ends:
            return False
        number = self._ends[step]
        self._method.begin_evaluation()
        score = held_out_score(self._method, self._stream, tasks).cpu().nan_to_num_(nan=-torch.inf)
        better = ~self._stopped & ((score > self._best) | (self._at == 0))
        self._best[better], self._at[better] = score[better], number
        self._taken[~self._stopped] = number
        self._keep(better)
        self._stopped |= number - self._at >= self._stream.patience
        return bool(self._stopped.all())

    def end_task(self) -> None:
        """Put every run back to where it was best."""
        for name, kept in self._kept.items():
            getattr(self._method, name).copy_(kept)
        self._tasks, self._sum = self._tasks + 1, self._sum + self._taken
        self._kept = {}

    def _keep(self, runs: Tensor) -> None:
        for name in dict.fromkeys(("parameters", "buffers", *self._method.state)):
            value = getattr(self._method, name)
            if not isinstance(value, Tensor):
                continue
            if name not in self._kept:
                self._kept[name] = value.clone()
            else:
                mine = runs.to(value.device).view(-1, *[1] * (value.ndim - 1))
                self._kept[name] = torch.where(mine, value, self._kept[name])

    def facts(self, run: int) -> dict[str, float]:
        """Return how many passes a run took, as a mean over its tasks, where they may be fewer."""
        return {"passes_taken": int(self._sum[run]) / self._tasks} if self._tasks else {}

    def state_dict(self) -> dict[str, Any]:
        """Return all that is known of the current task, for a checkpoint."""
        return {
            "tasks": self._tasks,
            "sum": self._sum.clone(),
            "best": self._best.clone(),
            "at": self._at.clone(),
            "stopped": self._stopped.clone(),
            "taken": self._taken.clone(),
            "kept": {name: kept.clone() for name, kept in self._kept.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        device = self._method.parameters.device
        self._tasks = state["tasks"]
        for name in ("sum", "best", "at", "stopped", "taken"):
            getattr(self, f"_{name}").copy_(state[name])
        self._kept = {name: kept.to(device, copy=True) for name, kept in state["kept"].items()}
