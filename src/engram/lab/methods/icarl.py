"""iCaRL: answers by the nearest mean of exemplars, and holds old outputs in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients import Mix
from engram.lab.benchmarks import Examples
from engram.lab.engine import Batch, ExampleStore
from engram.lab.methods.method import FinishedTask, Method, MethodSettings, Setup
from engram.lab.methods.registry import Entry, register
from engram.lab.plan import generator
from engram.lab.settings import setting
from engram.nearest_mean import distances

_PER_CLASS = 25  # of each task, the budget of the methods with a memory by class
_ROWS_AT_ONCE = 1_000
_OUT = -1e30  # a logit of no weight at all; -inf - -inf would be no number
_COLUMNS = ("inputs", "outputs", "tasks", "labels", "ranks")  # of an exemplar


@dataclass(frozen=True)
class IcarlSettings(MethodSettings):
    """Settings of iCaRL."""

    task_ids: bool = setting(
        True,
        "true: the means of the task asked about decide, as in the comparison; "
        "false: those of all tasks that have ended",
    )
    distillation: float = setting(1.0, "weight of what holds the old tasks' outputs", least=0)
    memory_size: int = setting(
        0,
        "exemplars in all (1300 in the comparison, on CIFAR); 0: as memory_per_class says",
        least=0,
    )
    memory_per_class: int = setting(
        _PER_CLASS,
        "exemplars for each class of each task, in all classes together, unless memory_size says "
        "how many",
        least=1,
        later=True,
    )


class Icarl(Method):
    """Herds exemplars of every class and task, and answers by the nearest mean of their outputs.

    A step goes down cross-entropy(batch) + λ Σ over old tasks of the mean of KL(q ‖ p), over one
    exemplar of each of its classes: p is the network's softmax, q what it was when the last task
    ended. Of every (task, class) the first budget / (number of those seen) exemplars stay.

    The answer is −distance to the mean of each class's outputs at the present weights; a class
    without exemplars has −inf. With task ids, a task that has not ended is answered by the
    network's own logits; without, this holds only until the first task has ended.
    """

    state: ClassVar[tuple[str, ...]] = (*Method.state, "ended", "planned")
    capturable = pads = True
    settings: IcarlSettings

    def __init__(self, setup: Setup, settings: IcarlSettings) -> None:
        super().__init__(setup, settings)
        self.stream, self.seeds = setup.stream, setup.seeds
        whole = settings.memory_per_class * self.stream.classes_per_task * self.stream.tasks
        self.budget = settings.memory_size or whole
        self.ended = 0  # tasks
        self.planned = (0, 0)  # the current task, and its steps
        self.exemplars: ExampleStore | None = None  # see `choose`
        self._means: tuple[Tensor, Tensor] | None = None  # at the present weights, once asked for
        self._position: Tensor | None = None
        self._update, self._distilled = (torch.empty_like(self.parameters) for _ in range(2))

    def begin_task(self, task: int, labels: Tensor) -> None:
        """Draw which exemplars the task's steps distil."""
        # The first task is taken for what the others will be like: better to refuse now than late.
        alike = self.stream.tasks if task == 0 else 1
        needed = int(lists_with(self.exemplars, labels, alike).max())
        if needed > self.budget:
            raise EngramError(
                f"memory_size must be at least {needed}, an exemplar for each class of each task, "
                f"not {self.budget}."
            )
        self._plan(task, -(-labels.shape[1] // self.settings.batch_size))

    def _plan(self, task: int, steps: int) -> None:
        self.planned = (task, steps)
        if self.exemplars is not None:
            places, weights = one_of_each(self.exemplars, self.seeds, task, steps)
            self._rows = self.exemplars.flat(places)
            self._weights = weights.to(self.parameters.dtype)

    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:  # noqa: ARG002
        """Take a step on the batch and the exemplars of old tasks."""
        losses = [self.rows.gradient(batch, self._update)]
        if self.exemplars is not None:
            inputs, labels, outputs = self._drawn(step)
            old = self.stream.batch(inputs, labels)._replace(weights=self._weights)
            objective = partial(distillation, targets=outputs)
            losses.append(self.rows.gradient(old, self._distilled, objective))
            self._update.add_(self._distilled, alpha=self.settings.distillation)
        self.rows.descend(self._update, self.learning_rate)
        self._means = None
        stacked = torch.stack(losses, -1)
        weights = torch.ones_like(stacked)
        weights[:, 1:] = self.settings.distillation
        return Mix(stacked, None, weights)

    def _drawn(self, step: int) -> list[Tensor]:
        """Return inputs, labels and old outputs of the exemplars that a step distils, [R, G]."""
        assert self.exemplars is not None
        if self._position is None:
            rows = self._rows[:, step]
        else:
            rows = self._rows.index_select(1, self._position).squeeze(1)
        return self.exemplars.read(rows, "inputs", "labels", "outputs")

    def locate(self, position: Tensor | None) -> None:
        """Take the number of the current step from the device."""
        self._position = position

    def end_task(self, task: int, finished: FinishedTask) -> None:
        """Choose the task's exemplars, cut back the others, and note the outputs of all."""
        examples = finished.examples()
        quotas = self.budget // lists_with(self.exemplars, examples.labels)
        outputs = self._outputs(examples.inputs)
        chosen = choose(task, examples, outputs, self.stream.classes, int(quotas.max()))
        every = chosen if self.exemplars is None else self.exemplars.joined(chosen)
        kept = first_of_each(every, quotas)
        kept.columns["outputs"] = self._outputs(kept["inputs"])
        self.exemplars = kept
        self.ended, self._means = task + 1, None

    def begin_evaluation(self) -> None:
        """Forget the means, which are of older weights."""
        self._means = None

    def predict(self, inputs: Tensor, columns: Tensor | None, task: int | None) -> Tensor:
        """Return −distances to the class means as logits [R, B, classes]; of all tasks for None."""
        logits = super().predict(inputs, columns, task)
        known = task if self.settings.task_ids else None
        if self.exemplars is None or (known is not None and known >= self.ended):
            return logits
        if self._means is None:
            outputs = self._outputs(self.exemplars["inputs"])
            self._means = means(self.exemplars, outputs, self.ended, self.stream.classes)
        asked = slice(None) if known is None else slice(known, known + 1)
        return -distances(logits, *(part[:, asked] for part in self._means))

    def _outputs(self, stored: Tensor) -> Tensor:
        """Return the network's logits for each run's own inputs [R, N, ...]."""
        parts = map(self.stream.normalise, torch.split(stored, _ROWS_AT_ONCE, 1))
        predict, buffers = self.network.predict, self.buffers
        return torch.cat([predict(self.parameters, part, None, buffers) for part in parts], 1)

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on, the exemplars included."""
        held = None if self.exemplars is None else self.exemplars.copied()
        return super().state_dict() | {"exemplars": held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.exemplars, saved = None, state["exemplars"]
        if saved is not None:
            self.exemplars = ExampleStore.loaded(saved, _COLUMNS, self.parameters.device)
        self._means = None
        self._plan(*self.planned)

    def facts(self) -> dict[str, int]:
        """Return what the method holds, for one run."""
        held = self.exemplars
        nbytes = 0 if held is None else held.row_nbytes * held.length
        return super().facts() | {"memory_bytes": nbytes}


def choose(
    task: int, examples: Examples, outputs: Tensor, classes: int, count: int
) -> ExampleStore:
    """Herd up to ``count`` of each class of a task; ``outputs`` [R, N, F] are the network's.

    Exemplars are in the order of task, class and rank. The rank is the place in the list that
    herding made of a class: the first m of a list are what herding chooses as the best m. A run
    that keeps fewer than the others is padded with rows of task -1. ``outputs`` are the network's
    when a task last ended.
    """
    sizes = _counts(examples.labels, classes)  # [R, C]
    ranks = torch.arange(int(sizes.max()), device=sizes.device)
    present = ranks < sizes.unsqueeze(-1)  # [R, C, L]
    firsts = (sizes.cumsum(-1) - sizes).unsqueeze(-1)
    by_class = examples.labels.argsort(dim=-1, stable=True)
    runs = _runs(sizes).unsqueeze(-1)
    members = by_class[runs, (firsts + ranks).clamp(max=by_class.shape[1] - 1)]
    count = min(count, len(ranks))
    members = members.gather(-1, herd(outputs[runs, members], present, count))
    labels = torch.arange(classes, device=sizes.device).view(1, -1, 1)
    columns = {
        "inputs": examples.inputs[runs, members],
        "outputs": outputs[runs, members],
        "tasks": torch.where(present[..., :count], task, -1),
        "labels": labels.expand_as(members),
        "ranks": ranks[:count].expand_as(members),
    }
    return ExampleStore({name: column.flatten(1, 2) for name, column in columns.items()})


def herd(outputs: Tensor, present: Tensor, count: int) -> Tensor:
    """Return the places [..., count] of those whose running mean stays closest to the mean of all.

    Greedily, the k-th is the one of ``outputs`` [..., L, F] not chosen yet that minimises
    |μ − (1/k) Σ of the first k|; of those equal up to rounding, as two alone always are, the
    first. Only those ``present`` [..., L] count; where they are fewer than ``count``, the places
    beyond them mean nothing.

    >>> outputs = torch.tensor([[0.0], [4.0], [1.5], [3.5]])  # their mean is 2.25
    >>> herd(outputs, torch.ones(4, dtype=torch.bool), 4).tolist()
    [2, 3, 0, 1]
    """
    outputs = outputs * present.unsqueeze(-1)
    mean = outputs.sum(-2, keepdim=True) / present.sum(-1).clamp(min=1)[..., None, None]
    # With the outputs centred, the k-th minimises |φ + S|², S the sum of those before it.
    centred = (outputs - mean) * present.unsqueeze(-1)
    most = outputs.norm(dim=-1).amax(-1) * centred.norm(dim=-1).amax(-1)
    slack = (16 * torch.finfo(outputs.dtype).eps * most).unsqueeze(-1)
    squares = centred.square().sum(-1).masked_fill(~present, torch.inf)
    total, chosen = torch.zeros_like(mean), []
    for _ in range(count):
        scores = squares + 2 * (centred * total).sum(-1)
        best = scores <= scores.amin(-1, keepdim=True) + slack
        place = best.int().argmax(-1, keepdim=True)
        squares = squares.scatter(-1, place, torch.inf)
        total = total + centred.take_along_dim(place.unsqueeze(-1), -2)
        chosen.append(place)
    return torch.cat(chosen, -1)


def first_of_each(exemplars: ExampleStore, quotas: Tensor) -> ExampleStore:
    """Return the first ``quotas`` [R] of every list."""
    kept = (exemplars["tasks"] >= 0) & (exemplars["ranks"] < quotas.unsqueeze(-1))
    order = (~kept).int().argsort(dim=-1, stable=True)[:, : int(kept.sum(-1).max())]
    cut = exemplars.select(order)
    cut.columns["tasks"] = cut["tasks"].where(kept[_runs(order), order], -1)
    return cut


def lists_with(exemplars: ExampleStore | None, labels: Tensor, tasks: int = 1) -> Tensor:
    """Return each run's number of (task, class) pairs [R], with ``tasks`` of these labels to come.

    ``labels`` is [R, N]; only classes that occur count.
    """
    ordered = labels.sort(-1).values
    classes = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(-1)
    if exemplars is None:
        return tasks * classes
    before = ((exemplars["tasks"] >= 0) & (exemplars["ranks"] == 0)).sum(-1)
    return before + tasks * classes


def one_of_each(
    exemplars: ExampleStore, seeds: Sequence[int], task: int, steps: int
) -> tuple[Tensor, Tensor]:  # [R, steps, G], [R, G]
    """Draw for each step of a task one exemplar of each list; return places and weights.

    A list's weight is 1 / the number of lists of its task, so that every task weighs 1.
    """
    drawn, shares = [], []
    for seed, tasks, labels in zip(
        seeds, exemplars["tasks"].cpu().numpy(), exemplars["labels"].cpu().numpy(), strict=True
    ):
        held = np.stack([tasks, labels], 1)[tasks >= 0]
        lists, starts, counts = np.unique(held, axis=0, return_index=True, return_counts=True)
        chances = generator(seed, "icarl", task).random((steps, len(lists)))
        drawn.append(starts + (chances * counts).astype(np.int64))
        _, of_task, sizes = np.unique(lists[:, 0], return_inverse=True, return_counts=True)
        shares.append(1 / sizes[of_task])
    width = max(map(len, shares))
    places = np.stack([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in drawn])
    weights = np.stack([np.pad(a, (0, width - len(a))) for a in shares])
    device = exemplars["tasks"].device
    return torch.from_numpy(places).to(device), torch.from_numpy(weights).to(device)


def distillation(logits: Tensor, batch: Batch, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each run's Σ weight · KL(softmax(targets) ‖ softmax(logits)) [R, 1], and its gradient.

    ``batch`` is one part, with weights; ``targets`` [R, B, classes] are logits too.
    """
    assert batch.weights is not None
    if batch.outputs is not None:
        logits, targets = (part.masked_fill(~batch.outputs, _OUT) for part in (logits, targets))
    new, old = torch.log_softmax(logits, -1), torch.log_softmax(targets, -1)
    losses = (old.exp() * (old - new)).sum(-1)
    gradient = (new.exp() - old.exp()) * batch.weights.unsqueeze(-1)
    return (losses * batch.weights).sum(-1, keepdim=True), gradient


def means(
    exemplars: ExampleStore, outputs: Tensor, tasks: int, classes: int
) -> tuple[Tensor, Tensor]:
    """Return the mean of each list's outputs [R, T, C, F], and which are empty [R, T, C]."""
    lists, ranks = tasks * classes, exemplars["ranks"]  # and one more list for the padding
    numbers = exemplars["tasks"] * classes + exemplars["labels"]
    index = torch.where(exemplars["tasks"] < 0, lists, numbers)
    counts = _counts(index, lists + 1)[:, :-1]
    # A place for each, then a sum: on a GPU the order of a scattered sum is left to chance.
    longest = int(ranks.max()) + 1
    table = outputs.new_zeros(len(outputs), lists + 1, longest, outputs.shape[-1])
    table[_runs(index), index, ranks] = outputs
    found = table[:, :-1].sum(2) / counts.clamp(min=1).unsqueeze(-1)
    shape = (len(outputs), tasks, classes)
    return found.view(*shape, -1), (counts == 0).view(shape)


def _counts(index: Tensor, size: int) -> Tensor:
    """Return how often each of 0..size-1 occurs in every row of an index [R, N], [R, size]."""
    return index.new_zeros(len(index), size).scatter_add_(1, index, torch.ones_like(index))


def _runs(like: Tensor) -> Tensor:
    """Return the runs' numbers [R, 1], to index with beside something [R, n]."""
    return torch.arange(len(like), device=like.device).unsqueeze(-1)


register(
    Entry(
        "icarl",
        Icarl,
        IcarlSettings,
        presets={
            "permuted-mnist": {"learning_rate": 0.1},  # tuned: docs/results
            "split-cifar": {"learning_rate": 0.1, "memory_size": 1300},
        },
        search={"learning_rate": (0.3, 0.1, 0.03, 0.01)},
        varies=("learning_rate",),
    )
)
