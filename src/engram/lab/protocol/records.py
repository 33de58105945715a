"""What a run leaves behind: accuracies, the numbers of its steps, where it diverged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError
from engram.gradients import Mix
from engram.lab.engine import unchecked
from engram.lab.methods import Method
from engram.lab.protocol.checkpoint import Checkpoint
from engram.lab.protocol.spec import Spec, differences
from engram.rules import MEGA1, MEGA2, Rule

Facts = dict[str, int | float | str]
Numbers = NDArray[np.float64]
Steps = dict[str, NDArray[Any]]
"""By name: the task and the step within it, and every column, [S] each."""

COLUMNS = (
    "current_loss",  # l_t
    "reference_loss",  # l_ref
    "current_weight",
    "reference_weight",
    "cosine",  # of the angle between g and r
    "k1",  # l_t / l_ref
    "k2",  # |g| / |r|
    "mixture_cosine",  # of the angle between g and the step that was taken
)

_BINS_PER_UNIT = 4  # of the histogram of log k2


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
        """Take the steps alone, once the current task has begun again."""
        if self.steps is not None:
            self.steps.load_state_dict(state["steps"])


class StepRecord:
    """The numbers of R runs' steps: of every ``every`` steps of a task, the last.

    A step writes into a table on the device at its own place, so that captured steps do it too
    and nothing is read back to the host; a task's table is read when the next one begins. What a
    step does not have is NaN: it read no memory, or its method forms no mixture of gradients. Of
    several reference rows it is the mean loss, the sum of the weights, and their mean's gradient.
    """

    def __init__(self, runs: int, every: int = 1) -> None:
        if every < 1:
            raise EngramError(f"record_every must be at least 1, not {every}.")
        self.every = every
        self._runs = runs
        self._table = torch.empty(0, runs, len(COLUMNS))  # of the current task
        self._read: list[NDArray[np.float32]] = []  # [steps, R, columns] of each task before
        self._lengths: list[int] = []  # steps of each task begun

    def begin_task(self, steps: int, device: torch.device) -> None:
        """Allocate for a task of so many steps."""
        self._keep()
        places = -(-steps // self.every)
        self._lengths.append(steps)
        self._table = torch.full((places, self._runs, len(COLUMNS)), torch.nan, device=device)

    def take(self, mix: Mix, step: int, position: Tensor | None) -> None:
        """Write a step; a captured one finds its place by ``position`` [1], on the device."""
        numbers = _numbers(mix)
        if position is None:
            self._table[step // self.every] = numbers
        else:
            place = torch.div(position, self.every, rounding_mode="floor")
            with unchecked():  # one place
                self._table.index_copy_(0, place, numbers.unsqueeze(0))

    def of(self, run: int) -> Steps:
        """Return the steps of one run, task after task."""
        self._keep()
        tasks = [np.full(len(table), task) for task, table in enumerate(self._read)]
        steps = [
            np.minimum((np.arange(len(table)) + 1) * self.every, length) - 1
            for table, length in zip(self._read, self._lengths, strict=True)
        ]
        mine = np.concatenate([table[:, run] for table in self._read])
        numbered = {"task": np.concatenate(tasks), "step": np.concatenate(steps)}
        whole: Steps = {name: places.astype(np.int32) for name, places in numbered.items()}
        return whole | {name: mine[:, place].copy() for place, name in enumerate(COLUMNS)}

    def state_dict(self) -> dict[str, Any]:
        """Return what has been recorded so far, the current task included."""
        read = [torch.from_numpy(table) for table in self._read]
        return {"lengths": list(self._lengths), "read": read, "table": self._table.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken; the current task has begun again."""
        self._lengths = [int(length) for length in state["lengths"]]
        self._read = [table.cpu().numpy() for table in state["read"]]
        self._table = state["table"].to(self._table.device, copy=True)

    def _keep(self) -> None:
        if len(self._table):
            self._read.append(self._table.cpu().numpy())
            self._table = self._table[:0]


def _numbers(mix: Mix) -> Tensor:
    """Return the columns of a step, [R, columns]."""
    losses, weights = mix.losses, mix.weights  # [R, rows]
    nothing = torch.full_like(losses[:, 0], torch.nan)
    if losses.shape[1] == 1:
        reference, added = nothing, nothing
    else:
        reference, added = losses[:, 1:].mean(1), weights[:, 1:].sum(1)
    angles = [nothing] * 3 if mix.gram is None else _angles(mix.gram, weights)
    cosine, k2, mixture = angles
    columns = [losses[:, 0], reference, weights[:, 0], added]
    columns += [cosine, losses[:, 0] / reference, k2, mixture]
    return torch.stack(columns, 1).float()


def _angles(gram: Tensor, weights: Tensor) -> list[Tensor]:
    """Return cos(g, r), |g| / |r| and cos(g, weights @ rows), [R] each."""
    length = gram[:, 0, 0].sqrt()
    reference = gram[:, 1:, 1:].mean((1, 2)).sqrt()
    products = torch.einsum("rij,rj->ri", gram, weights)  # of each row with the step
    step = (products * weights).sum(1).sqrt()
    cosine = gram[:, 0, 1:].mean(1) / length / reference
    return [cosine, length / reference, products[:, 0] / length / step]


class AllDiverged(Exception):  # noqa: N818 (what a run that has diverged leaves is an outcome)
    """Raised where every run of a stack has diverged: there is nothing left to train."""


class LossWatch:
    """Notices losses that are not finite, without a look at the device in every step.

    It keeps the largest loss of every step of the current task, on the device, [R, steps]. A step
    adds one small kernel or two, and a captured step nothing that the host waits for. Who looks
    finds the first step of each run whose loss is not finite, whenever that is.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        method: Method,
        seeds: Sequence[int],
        record: Record,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._specs, self._method, self._record = specs, method, record
        self._seeds, self._checkpoint = seeds, checkpoint
        self._losses = method.parameters.new_zeros(0, 0)

    def begin_task(self, steps: int) -> None:
        """Watch a task of so many steps."""
        parameters = self._method.parameters
        self._losses = parameters.new_zeros(len(parameters), steps)

    def take(self, mix: Mix, step: int, position: Tensor | None) -> None:
        """Keep the losses of a step; a captured one finds its place by ``position`` [1]."""
        worst = mix.losses.amax(-1) if mix.losses.shape[-1] > 1 else mix.losses[:, 0]  # or NaN
        worst = worst.to(self._losses.dtype)
        if position is None:
            self._losses[:, step] = worst
        else:
            with unchecked():  # one place
                self._losses.index_copy_(1, position, worst.unsqueeze(1))

    def suspicious(self, step: int) -> bool:
        """Whether the step just taken may have a loss that is not finite; a GPU is not asked."""
        return not self._losses.is_cuda and not math.isfinite(float(self._losses[:, step].sum()))

    def check(self, task: int, *, ended: bool = False) -> None:
        """Note the runs that have diverged in a task by now; raise `AllDiverged` if none is left.

        When a task has ended the weights are looked at as well: no loss has seen its last step.
        """
        length = self._losses.shape[1]
        bad = ~torch.isfinite(self._losses)
        if ended:
            weights = torch.isfinite(self._method.parameters).all(-1, keepdim=True)
            bad = torch.cat([bad, ~weights], 1)
        some, first = bad.any(1).tolist(), bad.int().argmax(1).tolist()
        for run, step in enumerate(first):
            if some[run] and self._record.failures[run] is None:
                what = "loss" if step < length else "weights"
                self._note(run, task, step, f"The {what} became non-finite")
        if all(failure is not None for failure in self._record.failures):
            raise AllDiverged

    def _note(self, run: int, task: int, step: int, what: str) -> None:
        length = self._losses.shape[1]
        reason = (
            f"{what} in task {task + 1} of {self._specs[0].tasks}, at step "
            f"{min(step + 1, length)} of {length} ({differences(self._specs, run)})."
        )
        self._record.failures[run] = Failure(task, step, reason)
        if self._checkpoint is not None:
            last = self._checkpoint.last
            good = f"The last good checkpoint is of {last}: {self._checkpoint.path}"
            none = "There is no checkpoint before it."
            self._checkpoint.message(f"Seed {self._seeds[run]}: {reason} {good if last else none}")


def step_facts(steps: Steps, rule: Rule | None) -> Facts:
    """Return how many steps were recorded, how k2 is distributed and, of MEGA-I, its angles.

    ``k2_below_1_percent`` is the share of steps with |g| < |r|, of those that read the memory.
    ``log_k2_histogram`` is ``FIRST: COUNT COUNT...``, a count for each quarter of the natural
    logarithm, the first from FIRST / 4 on.
    """
    facts: Facts = {"recorded_steps": len(steps["k2"])}
    k2 = steps["k2"].astype(np.float64)
    k2 = k2[~np.isnan(k2)]
    if not len(k2):
        return facts
    facts |= {"k2_below_1_percent": _percent(k2 < 1), "log_k2_histogram": _histogram(k2)}
    return facts | _angle_facts(steps) if isinstance(rule, MEGA1) else facts


def paper_cosine(k: Numbers, cosine: Numbers) -> Numbers:
    """Return (k + c) / sqrt(k² + 2 k c + 1), the paper's cosine of the angle between mix and g.

    c is the cosine of the angle between g and r. With k = k1 k2 it is MEGA-I's, cos θ1, with
    k = k1 MEGA-II's, cos θ2. It grows with k, so that k2 >= 1 implies θ1 <= θ2.
    """
    both: Numbers = (k + cosine) / np.sqrt(k * k + 2 * k * cosine + 1)
    return both


def _angle_facts(steps: Steps) -> Facts:
    """Compare the paper's two angles with each other and with those of the mixtures themselves.

    MEGA-I's mixture is the step that was taken; MEGA-II's is what its rule makes of the same
    losses and gradients. Only steps where MEGA-I weighs both gradients count, l_t > epsilon.
    """
    columns = ("k1", "k2", "cosine", "mixture_cosine", "current_weight", "reference_loss")
    k1, k2, cosine, mixture, weight, loss = (steps[name].astype(np.float64) for name in columns)
    read = ~np.isnan(k2)
    fit = read & (weight > 0) & (loss > 0) & np.isfinite(k2 * k1 * mixture) & (k2 > 0)
    facts: Facts = {"mixing_percent": _percent(fit[read])}
    if not fit.any():
        return facts
    k1, k2, cosine, mixture = k1[fit], k2[fit], cosine[fit], mixture[fit]
    first, second = paper_cosine(k1 * k2, cosine), paper_cosine(k1, cosine)
    return facts | {
        "theta_1_at_most_theta_2_percent": _percent(first >= second),
        "cos_theta_1_error": float(np.abs(first - mixture).max()),
        "cos_theta_2_error": float(np.abs(second - _mega2_cosine(k1, k2, cosine)).max()),
    }


def _mega2_cosine(k1: Numbers, k2: Numbers, cosine: Numbers) -> Numbers:
    """Return the cosine of the angle between g and MEGA-II's mixture, from its weights.

    Weights depend on the ratios alone, so |r| and l_ref may be taken as 1.
    """
    one = np.ones_like(k1)
    gram = np.stack([np.stack([k2 * k2, k2 * cosine], -1), np.stack([k2 * cosine, one], -1)], -2)
    losses = torch.from_numpy(np.stack([k1, one], -1))
    weights = MEGA2()(losses, torch.from_numpy(gram)).numpy()
    products = (gram @ weights[..., np.newaxis])[..., 0]
    length: Numbers = np.sqrt((products * weights).sum(-1))
    return products[..., 0] / k2 / length  # type: ignore[no-any-return]


def _histogram(k2: Numbers) -> str:
    positive = k2[(k2 > 0) & np.isfinite(k2)]
    if not len(positive):
        return "0:"
    places = np.floor(_BINS_PER_UNIT * np.log(positive)).astype(np.int64)
    counts = np.bincount(places - places.min())
    return f"{places.min()}: {' '.join(map(str, counts))}"


def _percent(holds: NDArray[Any]) -> float:
    return 100 * float(holds.mean())
