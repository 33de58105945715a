"""Rows of gradients for R stacked runs: the seam between networks and rules.

``Rows.step`` is a step of every method that mixes gradients: losses and rows, their dot products,
the rule's weights, and the update along the mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, groupby
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients import Mix
from engram.kernels import triton_works
from engram.lab.benchmarks import Batch
from engram.lab.engine.cuda_graphs import unchecked
from engram.lab.networks import Branches, Network, aligned_empty
from engram.rules import Rule

_MOST_CLASSES = 4096  # for a kernel that holds all logits of an example at once
_FEW_ROWS = 3
_MOST_ROWS = 128  # whose dot products a kernel holds

ByRun: TypeAlias = float | Tensor
"""A number for all runs of a stack or, as a tensor [R, 1], one for each."""


class Objective(Protocol):
    """A loss of the logits, and its gradient there."""

    def __call__(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return each part's loss [R, groups] and the gradient at the logits [R, B, classes]."""


def cross_entropy(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return each part's mean cross-entropy [R, groups] and the gradient at the logits.

    An example whose share of its part's mean is s has the loss −s log p(label), and the gradient
    s (p − 1) at its label and s p elsewhere.
    """
    if batch.outputs is not None:
        logits = logits.masked_fill(~batch.outputs, -torch.inf)
    elif logits.shape[-1] <= _MOST_CLASSES and triton_works(logits):
        from engram.kernels import rows as kernels

        return kernels.entropies(logits, batch.labels, batch.weights, batch.groups)
    log_probabilities = torch.log_softmax(logits, -1)
    labels = batch.labels.unsqueeze(-1)
    parts = (len(logits), batch.groups, -1)
    losses = -log_probabilities.gather(-1, labels).squeeze(-1)
    gradient = log_probabilities.exp_()
    with unchecked():  # a label for each example
        gradient.scatter_add_(-1, labels, gradient.new_full((), -1.0).expand(labels.shape))
    if batch.weights is None:
        return losses.view(parts).mean(-1), gradient.mul_(batch.groups / losses.shape[1])
    weighted = (losses * batch.weights).view(parts).sum(-1)
    return weighted, gradient.mul_(batch.weights.unsqueeze(-1))


def mean_loss(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return each part's mean loss [R, groups] and the gradient at the logits.

    It is the cross-entropy of classes, or what the batch's target says (see `Target`).
    """
    if batch.target is None or batch.targets is None:
        return cross_entropy(logits, batch)
    losses = batch.target.losses(logits, batch.targets)
    gradient = batch.target.slopes(logits, batch.targets)
    parts = (len(logits), batch.groups, -1)
    if batch.weights is None:
        return losses.view(parts).mean(-1), gradient.mul_(batch.groups / losses.shape[1])
    weighted = (losses * batch.weights).view(parts).sum(-1)
    return weighted, gradient.mul_(batch.weights.unsqueeze(-1))


class Steps(Protocol):
    """What takes the steps where plain SGD does not (see `engram.lab.engine.optimizers`)."""

    def step(self, update: Tensor) -> None:
        """Take a step of every run, whose gradients are ``update`` [R, d]."""


class Term(NamedTuple):
    """A loss that is added to what a rule mixes: an objective of a batch, and its weight."""

    batch: Batch
    objective: Objective
    weight: ByRun


class Rows:
    """The n gradients of R runs, and the step they make.

    ``parameters`` [R, d] belong to the caller and are updated in place; ``buffers`` [R, b] are
    the network's running averages, which training passes move. ``optimizer`` takes the steps in
    the place of plain SGD, where there is one.
    """

    compare: bool = False
    """Whether a step returns the rows' dot products even where its rule can do without."""

    def __init__(self, network: Network, parameters: Tensor, buffers: Tensor | None = None) -> None:
        self.network = network
        self.parameters = parameters
        self.buffers = network.initial_buffers(parameters) if buffers is None else buffers
        self.optimizer: Steps | None = None
        self._rows = parameters.new_empty(parameters.shape[0], 0, parameters.shape[1])

    def gradient(
        self,
        batch: Batch,
        row: Tensor,
        objective: Objective = mean_loss,
        *,
        training: bool = True,
    ) -> Tensor:
        """Write the gradient of the batch's loss into ``row`` [R, d] and return the losses [R].

        What is measured rather than learned is measured with ``training`` off: by the running
        averages, which stay as they are.
        """
        return self.gradients(batch, row.unsqueeze(1), objective, training=training).squeeze(1)

    def gradients(
        self,
        batch: Batch,
        rows: Tensor,
        objective: Objective = mean_loss,
        *,
        training: bool = True,
    ) -> Tensor:
        """Write the gradients of a batch's parts into rows [R, groups, d]; return their losses."""
        losses = [
            self._pass(part, row, self.buffers, objective, training=training)
            for part, row in self._passes(batch, rows)
        ]
        return torch.cat(losses, 1)

    def _pass(
        self,
        batch: Batch,
        rows: Tensor,
        buffers: Tensor,
        objective: Objective = mean_loss,
        *,
        training: bool = True,
    ) -> Tensor:
        logits, tape = self.network.forward(
            self.parameters, batch.inputs, buffers, weights=batch.weights, training=training
        )
        losses, at_logits = objective(logits, batch)
        self.network.backward(self.parameters, tape, at_logits, rows)
        return losses

    def of(
        self,
        current: Batch,
        reference: Batch | None,
        objective: Objective = mean_loss,
        terms: Sequence[Term] = (),
    ) -> tuple[Tensor, Tensor]:
        """Return losses [R, n] and rows [R, n + terms, d]; row 0 is the current batch's.

        The terms go first, then the reference, as in the paper's runs: it matters to running
        averages. The ``objective`` is the current batch's alone.
        """
        mixed = 1 + (reference.groups if reference else 0)
        count = mixed + len(terms)
        if self._rows.shape[1] < count:
            self._rows = aligned_empty(
                self.parameters, len(self.parameters), count, self.network.size
            )
        rows = self._rows[:, :count]
        passes = [
            (term.batch, rows[:, place : place + 1], term.objective)
            for place, term in enumerate(terms, mixed)
        ]
        if reference is not None:
            passes += [(*each, mean_loss) for each in self._passes(reference, rows[:, 1:mixed])]
        passes.append((current, rows[:, :1], objective))
        if rows.is_cuda and len(passes) > 1:
            losses = self._side_by_side(passes)
        else:
            losses = [self._pass(batch, row, self.buffers, goal) for batch, row, goal in passes]
        return torch.cat([losses.pop(), *losses[len(terms) :]], -1), rows

    def _passes(self, batch: Batch, rows: Tensor) -> list[tuple[Batch, Tensor]]:
        """Return the passes that a batch takes, each with the rows it fills."""
        if batch.groups == 1 or not self.network.one_part:
            return [(batch, rows)]
        # Each part has its own batch statistics, and moves the running averages in its turn.
        return list(zip(_parts(batch), torch.split(rows, 1, 1), strict=True))

    def _side_by_side(self, passes: Sequence[tuple[Batch, Tensor, Objective]]) -> list[Tensor]:
        """Make training passes that leave a GPU room for one another, and return their losses.

        What they gather for the running averages is kept apart and moved there afterwards, in
        their order. A network of which that cannot be done is passed in turn.
        """
        apart = self.network.apart(self.buffers, len(passes))
        if apart is None:
            return [self._pass(batch, rows, self.buffers, goal) for batch, rows, goal in passes]
        losses, branches = list[Tensor](), Branches(self.parameters.device)
        for (batch, rows, goal), gathered in zip(passes, apart, strict=True):
            with branches.branch():
                losses.append(self._pass(batch, rows, gathered, goal))
        branches.join()
        self.network.put_together(self.buffers, apart)
        return losses

    def step(
        self,
        rule: Rule,
        learning_rate: ByRun,
        current: Batch,
        reference: Batch | None,
        *,
        objective: Objective = mean_loss,
        terms: Sequence[Term] = (),
    ) -> Mix:
        """Take one step of gradient descent along the mixture that the rule asks for.

        The ``objective`` is the current batch's. The ``terms`` are none of the rule's business:
        their gradients are added to the mixture, with weights of their own.
        """
        losses, rows = self.of(current, reference, objective, terms)
        mixed = rows[:, : losses.shape[1]]
        matrix = gram(mixed) if reference and (rule.needs_gram or self.compare) else None
        weights = rule(losses, matrix if rule.needs_gram else None)
        every = weights
        if terms:
            one = torch.ones_like(weights[:, :1])
            every = torch.cat([weights, *(one * term.weight for term in terms)], 1)
        if rows.shape[1] == 1:
            self.descend(rows[:, 0], learning_rate)
        elif self.optimizer is not None:
            self.optimizer.step(torch.bmm(every.unsqueeze(1), rows).squeeze(1))
        else:
            descend_along(self.parameters, rows, every, learning_rate)
        return Mix(losses, matrix, weights)

    def descend(self, update: Tensor, learning_rate: ByRun) -> None:
        """Take one plain step of gradient descent, or the optimiser's."""
        if self.optimizer is not None:
            self.optimizer.step(update)
            return
        update, rate = absorbed(update, learning_rate)
        self.parameters.sub_(update, alpha=rate)


def _parts(batch: Batch) -> list[Batch]:
    """Return a batch's parts as batches of their own."""
    inputs, labels = (tensor.chunk(batch.groups, 1) for tensor in batch[:2])
    weights, outputs, targets = (
        [None] * batch.groups if tensor is None else tensor.chunk(batch.groups, 1)
        for tensor in (batch.weights, batch.outputs, batch.targets)
    )
    return [
        Batch(images, classes, shares, 1, mask, batch.target, answers)
        for images, classes, shares, mask, answers in zip(
            inputs, labels, weights, outputs, targets, strict=True
        )
    ]


def gram(rows: Tensor) -> Tensor:
    """Return the dot products [R, n, n] of rows [R, n, d]."""
    count = rows.shape[1]
    if _have_kernels(rows):
        from engram.kernels import rows as kernels

        return kernels.gram(rows)
    if not rows.is_cuda or count > _FEW_ROWS:
        return torch.bmm(rows, rows.transpose(1, 2))
    # A batched product this thin keeps a GPU waiting; multiplying and summing does not.
    squares = torch.linalg.vector_norm(rows, dim=-1).square_()
    entries = {(i, i): squares[:, i] for i in range(count)}
    for i, j in combinations(range(count), 2):
        entries[i, j] = entries[j, i] = (rows[:, i] * rows[:, j]).sum(-1)
    ordered = [entries[i, j] for i in range(count) for j in range(count)]
    return torch.stack(ordered, -1).view(-1, count, count)


def descend_along(parameters: Tensor, rows: Tensor, weights: Tensor, learning_rate: ByRun) -> None:
    """Take a step along the mixture, w <- w - rate * (weights @ rows), of parameters [R, d]."""
    weights, rate = absorbed(weights, learning_rate)
    if _have_kernels(rows, parameters):
        from engram.kernels import rows as kernels

        kernels.descend(parameters, rows, weights, rate)
    elif rows.is_cuda and rows.shape[1] <= _FEW_ROWS:
        for row, weight in zip(rows.unbind(1), weights.unbind(1), strict=True):
            parameters.addcmul_(row, weight.unsqueeze(-1), value=-rate)
    else:
        parameters.unsqueeze(1).baddbmm_(weights.unsqueeze(1), rows, alpha=-rate)


def _have_kernels(rows: Tensor, *others: Tensor) -> bool:
    """Whether there are kernels that read the rows of a GPU once.

    Numbers of a row have to lie one behind the other, and those of the others too.
    """
    dense = all(tensor.stride(-1) == 1 for tensor in (rows, *others))
    return 2 <= rows.shape[1] <= _MOST_ROWS and dense and triton_works(rows)


def absorbed(tensor: Tensor, number: ByRun) -> tuple[Tensor, float]:
    """Return a tensor [R, ...] and a number for all runs, whose product is that of the two given.

    One number for each run goes into the tensor, and 1 is left.
    """
    if not isinstance(number, Tensor):
        return tensor, number
    return tensor * number.view(-1, *[1] * (tensor.dim() - 1)), 1.0


class RuleByRun(Rule):
    """Weighs the rows of every run, [R, rows], by a rule of its own; all rules are of one kind.

    Neighbours with equal rules are weighed together: a rule for each of k values costs k kernels.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.needs_gram, self.reference = rules[0].needs_gram, rules[0].reference
        self._rules = tuple(rules)
        self._parts = list[tuple[Rule, slice]]()
        start = 0
        for rule, alike in groupby(rules):
            end = start + len(list(alike))
            self._parts.append((rule, slice(start, end)))
            start = end

    @property
    def draws_by_task(self) -> bool:
        """Whether rows by task are of fresh draws, which is the same for all rules."""
        return self._rules[0].draws_by_task

    def of(self, run: int) -> Rule:
        """Return the rule of one run."""
        return self._rules[run]

    def _check(self, losses: Tensor, gram: Tensor | None) -> None:
        super()._check(losses, gram)
        if losses.dim() != 2 or len(losses) != len(self._rules):
            raise EngramError(
                f"losses must have the shape [{len(self._rules)}, rows], a row for each run, "
                f"not {list(losses.shape)}."
            )

    def _weigh_and_mark(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        return self.weigh(losses, gram)

    def weigh(self, losses: Tensor, gram: Tensor | None) -> Tensor:
        """Return the weights by each run's rule."""
        parts = [
            rule(losses[part], None if gram is None else gram[part]) for rule, part in self._parts
        ]
        return torch.cat(parts)
