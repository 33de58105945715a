"""What a run leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.protocol._records import StepRecord, Steps


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
    steps: Steps | None = None  # of a run that was to record them


class Failure(NamedTuple):
    """Where a run diverged; what was measured from there on is of no use."""

    task: int
    step: int  # of the task
    reason: str  # in one sentence


class Record:
    """Collects the accuracies of R runs and, where it is asked to, what their steps are made of."""

    def __init__(self, runs: int, tasks: int, record_every: int = 0) -> None:
        self.matrix = torch.full((runs, tasks, tasks), torch.nan, dtype=torch.float64)
        self.curves: list[list[Tensor]] = [[] for _ in range(tasks)]
        self.failures: list[Failure | None] = [None] * runs
        self.steps = StepRecord(runs, record_every) if record_every else None

    def accuracy(self, run: int) -> list[list[float | None]]:
        """Return a run's matrix with None for what was not measured."""
        good, failure = self.matrix[run].clone(), self.failures[run]
        if failure is not None:
            good[failure.task :] = torch.nan
        return [
            [None if value != value else value for value in row]  # NaN is not itself
            for row in good.tolist()
        ]

    def curve(self, run: int) -> list[list[float]]:
        """Return a run's learning curves, one for each task."""
        curves = [[float(point[run]) for point in points] for points in self.curves if points]
        failure = self.failures[run]
        if failure is not None:
            # The loss of step s is that of the weights after s steps, and so is point s.
            del curves[failure.task + 1 :]
            curves[failure.task :] = [points[: failure.step] for points in curves[failure.task :]]
        return curves

    def steps_of(self, run: int) -> Steps | None:
        """Return what a run's steps were made of, if it was to be recorded."""
        return None if self.steps is None else self.steps.of(run)

    def failure(self, run: int) -> str | None:
        """Return why a run diverged, or None."""
        failure = self.failures[run]
        return None if failure is None else failure.reason

    def state_dict(self) -> dict[str, Any]:
        """Return what was measured so far."""
        return {
            "matrix": self.matrix.clone(),
            "curves": [[point.tolist() for point in points] for points in self.curves],
            "failures": list(self.failures),
            "steps": self.steps and self.steps.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        self.matrix.copy_(state["matrix"])
        self.curves = [
            [torch.tensor(point, dtype=torch.float64) for point in points]
            for points in state["curves"]
        ]
        self.failures = [each and Failure(*each) for each in state["failures"]]
        self.load_steps(state)

    def load_steps(self, state: Mapping[str, Any]) -> None:
        """Take the steps alone, once the task in hand has begun again."""
        if self.steps is not None:
            self.steps.load_state_dict(state["steps"])
