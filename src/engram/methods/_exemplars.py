"""The exemplars of R stacked runs: chosen by herding, cut back as more tasks arrive, distilled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engram.engine import Batch
from engram.plan import generator
from engram.streams import Examples

_OUT = -1e30  # a logit of no weight at all; -inf - -inf would be no number


class Exemplars(NamedTuple):
    """What each run keeps, in the order of task, class and rank.

    The rank is the place in the list that herding made of a class: the first m of a list are
    what herding chooses as the best m. A run that keeps fewer than the others is padded with
    rows of task -1.
    """

    inputs: Tensor  # [R, n, ...], as stored
    outputs: Tensor  # [R, n, F], the network's when a task last ended
    tasks: Tensor  # [R, n]
    labels: Tensor  # [R, n]
    ranks: Tensor  # [R, n]

    def joined(self, others: Exemplars) -> Exemplars:
        """Return these and, behind them, the others."""
        return Exemplars(*(torch.cat(pair, 1) for pair in zip(self, others, strict=True)))

    def first(self, quotas: Tensor) -> Exemplars:
        """Return the first ``quotas`` [R] of every list."""
        kept = (self.tasks >= 0) & (self.ranks < quotas.unsqueeze(-1))
        order = (~kept).int().argsort(dim=-1, stable=True)[:, : int(kept.sum(-1).max())]
        index = (_runs(order), order)
        cut = Exemplars(*(part[index] for part in self))
        return cut._replace(tasks=cut.tasks.where(kept[index], -1))

    def means(self, outputs: Tensor, tasks: int, classes: int) -> tuple[Tensor, Tensor]:
        """Return the mean of each list's outputs [R, T, C, F], and which are empty [R, T, C]."""
        lists = tasks * classes  # and one more for the padding
        index = torch.where(self.tasks < 0, lists, self.tasks * classes + self.labels)
        counts = _counts(index, lists + 1)[:, :-1]
        # A place for each, then a sum: on a GPU the order of a scattered sum is left to chance.
        longest = int(self.ranks.max()) + 1
        table = outputs.new_zeros(len(outputs), lists + 1, longest, outputs.shape[-1])
        table[_runs(index), index, self.ranks] = outputs
        means = table[:, :-1].sum(2) / counts.clamp(min=1).unsqueeze(-1)
        shape = (len(outputs), tasks, classes)
        return means.view(*shape, -1), (counts == 0).view(shape)

    def one_of_each(
        self, seeds: Sequence[int], task: int, steps: int
    ) -> tuple[Tensor, Tensor]:  # [R, steps, G], [R, G]
        """Draw for each step of a task one exemplar of each list; return places and weights.

        A list's weight is 1 / the number of lists of its task, so that every task weighs 1.
        """
        drawn, shares = [], []
        for seed, tasks, labels in zip(
            seeds, self.tasks.cpu().numpy(), self.labels.cpu().numpy(), strict=True
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
        device = self.tasks.device
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


def distances(outputs: Tensor, means: Tensor, empty: Tensor) -> Tensor:
    """Return how far outputs [R, B, F] are from the nearest of each class's means, [R, B, C].

    ``means`` [R, T, C, F] and ``empty`` [R, T, C] are as `Exemplars.means` gives them; a class
    without any exemplar is infinitely far.
    """
    every = torch.cdist(
        outputs.unsqueeze(1), means, compute_mode="donot_use_mm_for_euclid_dist"
    )  # [R, T, B, C]
    return every.masked_fill(empty.unsqueeze(2), torch.inf).amin(1)


def lists_with(held: Exemplars | None, labels: Tensor, tasks: int = 1) -> Tensor:
    """Return each run's number of (task, class) pairs [R], with ``tasks`` of these labels to come.

    ``labels`` is [R, N]; only classes that occur count.
    """
    ordered = labels.sort(-1).values
    classes = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(-1)
    before = 0 if held is None else ((held.tasks >= 0) & (held.ranks == 0)).sum(-1)
    return before + tasks * classes


def choose(task: int, examples: Examples, outputs: Tensor, classes: int, count: int) -> Exemplars:
    """Herd up to ``count`` of each class of a task; ``outputs`` [R, N, F] are the network's."""
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
    parts = (
        examples.inputs[runs, members],
        outputs[runs, members],
        torch.where(present[..., :count], task, -1),
        labels.expand_as(members),
        ranks[:count].expand_as(members),
    )
    return Exemplars(*(part.flatten(1, 2) for part in parts))


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


def _counts(index: Tensor, size: int) -> Tensor:
    """Return how often each of 0..size-1 occurs in every row of an index [R, N], [R, size]."""
    return index.new_zeros(len(index), size).scatter_add_(1, index, torch.ones_like(index))


def _runs(like: Tensor) -> Tensor:
    """Return the runs' numbers [R, 1], to index with beside something [R, n]."""
    return torch.arange(len(like), device=like.device).unsqueeze(-1)
