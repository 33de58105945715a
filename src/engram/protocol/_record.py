"""What a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from engram.methods import Method
from engram.streams import Stream


@dataclass(frozen=True)
class Outcome:
    """The accuracies of one finished run, as fractions, and what it cost."""

    seed: int
    accuracy: list[list[float | None]]  # [T][T], after each task; None: task not seen yet
    curve: list[list[float]]  # [T][<= 11], on the current task after b batches
    seconds: float  # wall clock; a stack's is divided by its runs
    device: str
    facts: dict[str, int | float | str] = field(default_factory=dict)
    failure: str | None = None  # one sentence, where the run diverged


class Record:
    """Collects the accuracies of R runs."""

    def __init__(self, runs: int, tasks: int) -> None:
        self.matrix = torch.full((runs, tasks, tasks), torch.nan, dtype=torch.float64)
        self.curves: list[list[Tensor]] = [[] for _ in range(tasks)]
        self.failures: list[str | None] = [None] * runs

    def accuracy(self, run: int) -> list[list[float | None]]:
        """Return a run's matrix with None for what was not measured."""
        return [
            [None if value != value else value for value in row]  # NaN is not itself
            for row in self.matrix[run].tolist()
        ]

    def curve(self, run: int) -> list[list[float]]:
        """Return a run's learning curves, one for each task."""
        return [[float(point[run]) for point in points] for points in self.curves if points]


def accuracy(method: Method, stream: Stream, task: int, *, curve: bool = False) -> Tensor:
    """Return each run's accuracy on test examples of a task, [R], float64 on the CPU.

    With ``curve`` on those that a point of the learning curve is measured on.
    """
    correct: Tensor | int = 0
    total: float = 0
    outputs = stream.task_outputs(task)
    for batch in stream.test(task, curve=curve):
        logits = method.predict(batch.inputs, batch.columns, task)
        if outputs is not None:
            logits = logits.masked_fill(~outputs.unsqueeze(1), -torch.inf)
        right = logits.argmax(-1) == batch.labels
        if batch.weights is None:
            correct, total = correct + right.sum(-1), total + batch.labels.shape[-1]
        else:
            correct, total = correct + (right * batch.weights).sum(-1), 1
    return torch.as_tensor(correct).cpu().double() / total
