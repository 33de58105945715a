"""Kinds of targets: classes, several labels, numbers. Their loss, answers, measure and score.

Each is a frozen description of what a model is to answer, with functions of plain tensors: the
model's ``outputs`` [..., B, outputs] and the ``targets`` of B examples, [..., B] or
[..., B, outputs]. Leading dimensions (stacked runs, say) are kept.

What is measured is a sum over examples: ``statistics`` gives the terms of each example in float64,
``metric`` and ``summary`` read their sum. So tests come in batches of any size, and a bootstrap
draws rows of what has been measured once.

``metric`` is what users of that kind expect; higher is better. ``score`` is the metric from 0 to 1,
which averages and forgetting are made of: `engram.metrics.forgetting` of a matrix of scores is, for
every earlier task, its best score so far less its score at the end.

| | metric | its range | score |
|---|---|---|---|
| `Classes` | accuracy, the share of examples answered rightly | 0 to 1 | the same |
| `Labels` | F1 over all labels and examples (micro F1) | 0 to 1 | the same |
| `Numbers` | R², the mean over the numbers of 1 - error² / variance | -inf to 1 | at least 0 |

Several labels have F1, because the share of right answers is high for a model that never says
yes, the share of examples with all labels right falls with their number, and the mean over labels
is not defined where a task has no example of one, as is usual in a stream. A model whose R² is
below 0 is worse than the mean of what it is tested on: it scores 0, so that one task which is lost
does not outweigh all others in an average.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from engram.errors import EngramError, shown

__all__ = ["Classes", "Labels", "Numbers", "Target"]

_LARGEST = 1e30  # a number to learn, in its own unit: its square has a float64, not a float32


@dataclass(frozen=True)
class Target(ABC):
    """What a model is to answer: the ``names`` of its outputs, in their order."""

    names: tuple[str, ...]

    kind: ClassVar[str]
    metric_name: ClassVar[str]
    lowest: ClassVar[float] = 0.0
    """The end of the metric's range; the other is 1."""

    _least: ClassVar[int] = 1

    def __post_init__(self) -> None:
        names = self.names
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise EngramError(f"names must be texts, one for each output, not {shown(names)}.")
        object.__setattr__(self, "names", tuple(names))
        if len(names) < self._least:
            raise EngramError(f"names must be of {self._least} {self.kind} or more, not {names!r}.")
        if len(set(names)) < len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise EngramError(f"names must be different from one another, and {twice!r} is twice.")

    @property
    def outputs(self) -> int:
        """How many outputs a model needs."""
        return len(self.names)

    @abstractmethod
    def check(self, targets: Tensor) -> Tensor:
        """Return targets as the other functions take them; refuse what cannot be learned."""

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return each example's loss [..., B], which autograd can go back through.

        ``allowed`` [..., B, outputs] marks which classes an example may be of; None: any.
        """

    @abstractmethod
    def slopes(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the gradient of each example's loss at its outputs, [..., B, outputs]."""

    @abstractmethod
    def predictions(self, outputs: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the answers, of the same kind and shape as targets."""

    @abstractmethod
    def statistics(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return what `metric` and `summary` need of each example, [..., B, S] in float64."""

    @abstractmethod
    def metric(self, total: Tensor) -> Tensor:
        """Return the metric [...] from statistics summed over examples, [..., S].

        Without a single example it is NaN.
        """

    @abstractmethod
    def summary(self, total: Tensor) -> dict[str, float]:
        """Return the metric and what else there is to say, by name, from a sum [S]."""

    def score(self, total: Tensor) -> Tensor:
        """Return the metric from 0 to 1, see above."""
        return self.metric(total).clamp(0, 1)

    def _rows(self, targets: object) -> Tensor:
        if not isinstance(targets, Tensor):
            raise EngramError(f"targets must be a tensor, not {shown(targets)}.")
        if targets.ndim < 1 or (targets.shape[-1] != self.outputs and self._least == 1):
            raise EngramError(
                f"targets must have {self.outputs} {self.kind} for each example, "
                f"[..., {self.outputs}], not {list(targets.shape)}."
            )
        return targets

    def _refuse_masks(self, allowed: Tensor | None) -> None:
        if allowed is not None:
            raise EngramError(f"allowed must be None for {self.kind}: no output excludes another.")


@dataclass(frozen=True)
class Classes(Target):
    """One of several classes, an example's target being the number of its class.

    The loss is the cross-entropy.

    >>> animals = Classes(("cat", "dog", "fox"))
    >>> outputs = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])
    >>> targets = animals.check(torch.tensor([0, 1]))
    >>> animals.predictions(outputs)
    tensor([0, 2])
    >>> float(animals.metric(animals.statistics(outputs, targets).sum(0)))
    0.5
    """

    kind: ClassVar[str] = "classes"
    metric_name: ClassVar[str] = "accuracy"
    _least: ClassVar[int] = 2

    def check(self, targets: Tensor) -> Tensor:
        """Return the numbers of classes as int64; each must be one of the classes."""
        targets = self._rows(targets)
        if targets.is_floating_point() or targets.is_complex():
            raise EngramError(
                f"targets must be the numbers of classes, whole numbers, not {targets.dtype}."
            )
        targets = targets.long()
        wrong = (targets < 0) | (targets >= self.outputs)
        if wrong.any():
            place, value = _first(wrong, targets)
            raise EngramError(
                f"targets must be from 0 to {self.outputs - 1}, and that of {place} is {value}."
            )
        return targets

    def losses(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return each example's cross-entropy, -log p(its class)."""
        chances = torch.log_softmax(_among(outputs, allowed), -1)
        return -chances.gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    def slopes(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return p - 1 at each example's class and p elsewhere."""
        chances = torch.softmax(_among(outputs, allowed), -1)
        return chances - functional.one_hot(targets, self.outputs).to(chances.dtype)

    def probabilities(self, outputs: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return each class's probability [..., B, outputs]; they add up to 1."""
        return torch.softmax(_among(outputs, allowed), -1)

    def predictions(self, outputs: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the number of the most probable class."""
        return _among(outputs, allowed).argmax(-1)

    def statistics(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return 1 for each example, and 1 if its answer is right."""
        right = (self.predictions(outputs, allowed) == targets).double()
        return torch.stack([torch.ones_like(right), right], -1)

    def metric(self, total: Tensor) -> Tensor:
        """Return the share of examples that are answered rightly."""
        return total[..., 1] / total[..., 0]

    def summary(self, total: Tensor) -> dict[str, float]:
        """Return the accuracy."""
        return {"accuracy": float(self.metric(total))}


@dataclass(frozen=True)
class Labels(Target):
    """Several labels, each of which an example has or has not: targets [..., B, outputs], 0 or 1.

    The loss is the mean over the labels of the binary cross-entropy, so that a step is as large
    for many labels as for few. The answer is yes where a label is more probable than not.

    >>> tags = Labels(("urgent", "spam"))
    >>> outputs = torch.tensor([[3.0, -1.0], [2.0, -2.0]])
    >>> targets = tags.check(torch.tensor([[1, 0], [0, 1]]))
    >>> tags.summary(tags.statistics(outputs, targets).sum(0))
    {'f1': 0.5, 'precision': 0.5, 'recall': 0.5, 'exact_match': 0.5}
    """

    kind: ClassVar[str] = "labels"
    metric_name: ClassVar[str] = "F1"

    def check(self, targets: Tensor) -> Tensor:
        """Return the targets as floats; each must be 0 or 1."""
        targets = self._rows(targets)
        wrong = (targets != 0) & (targets != 1)  # of NaN both hold
        if wrong.any():
            place, value = _first(wrong, targets)
            raise EngramError(f"targets must be 0 or 1, and of those of {place} one is {value}.")
        return targets.to(torch.get_default_dtype())

    def losses(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return each example's mean over the labels of -log p(has it), or -log p(has it not)."""
        self._refuse_masks(allowed)
        return functional.binary_cross_entropy_with_logits(
            outputs, targets.to(outputs.dtype), reduction="none"
        ).mean(-1)

    def slopes(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return (p - target) / number of labels."""
        self._refuse_masks(allowed)
        return (outputs.sigmoid() - targets.to(outputs.dtype)) / self.outputs

    def probabilities(self, outputs: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return each label's own probability [..., B, outputs]."""
        self._refuse_masks(allowed)
        return outputs.sigmoid()

    def predictions(self, outputs: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return 1 where a label is more probable than not, else 0."""
        self._refuse_masks(allowed)
        return (outputs > 0).to(outputs.dtype)

    def statistics(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return 1, the right yes, the wrong yes, the wrong no, and 1 if all labels are right."""
        said, true = self.predictions(outputs, allowed) > 0, targets > 0.5
        columns = [(said & true).sum(-1), (said & ~true).sum(-1), (~said & true).sum(-1)]
        columns = [torch.ones_like(columns[0]), *columns, (said == true).all(-1)]
        return torch.stack([column.double() for column in columns], -1)

    def metric(self, total: Tensor) -> Tensor:
        """Return 2 · right yes / (2 · right yes + wrong yes + wrong no).

        Where no example has a label, and the model says none, all is right: 1.
        """
        count, right, wrong, missed, _ = total.unbind(-1)
        found = _ratio(2 * right, 2 * right + wrong + missed)
        return torch.where(count > 0, found, torch.nan)

    def summary(self, total: Tensor) -> dict[str, float]:
        """Return F1, precision, recall, and the share of examples with all labels right."""
        count, right, wrong, missed, exact = total.unbind(-1)
        return {
            "f1": float(self.metric(total)),
            "precision": float(_ratio(right, right + wrong)),
            "recall": float(_ratio(right, right + missed)),
            "exact_match": float(exact / count),
        }


@dataclass(frozen=True)
class Numbers(Target):
    """Numbers, as in regression: targets [..., B, outputs].

    A model's outputs are in units of ``scales`` from ``means``, those of the first examples it
    learned from (`fitted`); `predictions` are in the targets' own units. The loss is the mean
    over the numbers of the squared error in those units.

    >>> rent = Numbers.fitted(("rent",), torch.tensor([[500.0], [700.0]]))
    >>> rent
    Numbers(names=('rent',), means=(600.0,), scales=(100.0,))
    >>> targets = rent.check(torch.tensor([[500.0], [700.0], [900.0]]))
    >>> outputs = torch.tensor([[-1.0], [1.0], [2.0]])
    >>> rent.predictions(outputs).squeeze(-1).tolist()
    [500.0, 700.0, 800.0]
    >>> summary = rent.summary(rent.statistics(outputs, targets).sum(0))
    >>> {name: round(value, 3) for name, value in summary.items()}
    {'r2': 0.875, 'rmse': 57.735, 'mae': 33.333}
    """

    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    kind: ClassVar[str] = "numbers"
    metric_name: ClassVar[str] = "R²"
    lowest: ClassVar[float] = -torch.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, plain in (("means", 0.0), ("scales", 1.0)):
            values = tuple(map(float, getattr(self, field))) or (plain,) * self.outputs
            object.__setattr__(self, field, values)
            good = all(
                abs(value) <= _LARGEST and (value > 0 or field == "means") for value in values
            )
            if len(values) != self.outputs or not good:
                kind = "finite" if field == "means" else "finite and above 0"
                raise EngramError(
                    f"{field} must be {kind}, one for each of the {self.outputs} numbers, "
                    f"not {shown(values)}."
                )

    @classmethod
    def fitted(cls, names: Sequence[str], targets: Tensor) -> Numbers:
        """Return the numbers with the means and standard deviations of some targets [B, outputs].

        A number that is the same in all of them has the scale 1.
        """
        plain = cls(tuple(names))
        values = plain.check(targets).double().reshape(-1, plain.outputs)
        if not len(values):
            raise EngramError("targets must be of one example or more to be fitted, not of none.")
        means = values.mean(0)
        # The deviation of equal numbers may be a rounding of their mean.
        same = values.amin(0) == values.amax(0)
        means = torch.where(same, values[0], means)
        scales = torch.where(same, 1.0, (values - means).square().mean(0).sqrt())
        return cls(plain.names, tuple(means.tolist()), tuple(scales.tolist()))

    def check(self, targets: Tensor) -> Tensor:
        """Return the targets as floats; each must be finite and at most 1e30 in size."""
        targets = self._rows(targets)
        if targets.is_complex():
            raise EngramError(f"targets must be real numbers, not {targets.dtype}.")
        whole = not targets.is_floating_point()  # of which float32 has only the small ones
        floats = targets.double() if whole or targets.dtype == torch.float64 else targets.float()
        wrong = ~(floats.abs() <= _LARGEST)
        if wrong.any():
            place, value = _first(wrong, targets)
            raise EngramError(
                f"targets must be finite numbers of at most 1e30, and of those of {place} one is "
                f"{value}."
            )
        return floats

    def scaled(self, targets: Tensor) -> Tensor:
        """Return targets in the units of the outputs."""
        return (targets - targets.new_tensor(self.means)) / targets.new_tensor(self.scales)

    def losses(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return each example's mean over the numbers of the squared error, in units of scale."""
        self._refuse_masks(allowed)
        return (outputs - self.scaled(targets).to(outputs.dtype)).square().mean(-1)

    def slopes(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return 2 · error / how many numbers."""
        self._refuse_masks(allowed)
        return 2 * (outputs - self.scaled(targets).to(outputs.dtype)) / self.outputs

    def predictions(self, outputs: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the numbers in the targets' own units."""
        self._refuse_masks(allowed)
        return outputs * outputs.new_tensor(self.scales) + outputs.new_tensor(self.means)

    def statistics(self, outputs: Tensor, targets: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return 1 and, of each number, error², |error|, target and target², in units of scale."""
        self._refuse_masks(allowed)
        scaled = self.scaled(targets.double())
        error = outputs.double() - scaled
        one = torch.ones_like(error[..., :1])
        return torch.cat([one, error.square(), error.abs(), scaled, scaled.square()], -1)

    def metric(self, total: Tensor) -> Tensor:
        """Return the mean over the numbers of R² = 1 - Σ error² / Σ (target - mean target)².

        The means are those of the examples it is measured on. Of targets that are all equal it is
        1 where there is no error, else 0.
        """
        count, errors, _, sums, squares = self._parts(total)
        spread = squares - sums.square() / count
        # What is left of squares that cancel says nothing.
        flat = spread <= 8 * torch.finfo(torch.float64).eps * squares
        explained = 1 - errors / torch.where(flat, 1.0, spread)
        of_flat = (errors == 0).to(explained.dtype)
        each = torch.where(flat, of_flat, explained)
        return torch.where(count > 0, each, torch.nan).mean(-1)

    def summary(self, total: Tensor) -> dict[str, float]:
        """Return R² and, in the targets' own units, the means over the numbers of RMSE and MAE."""
        count, errors, absolute, _, _ = self._parts(total)
        scales = total.new_tensor(self.scales)
        return {
            "r2": float(self.metric(total)),
            "rmse": float(((errors / count).sqrt() * scales).mean()),
            "mae": float((absolute / count * scales).mean()),
        }

    def _parts(self, total: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        one, two, three, four = torch.split(total[..., 1:], self.outputs, -1)
        return total[..., :1], one, two, three, four


def _among(outputs: Tensor, allowed: Tensor | None) -> Tensor:
    return outputs if allowed is None else outputs.masked_fill(~allowed, -torch.inf)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, 1 where both are 0."""
    return torch.where(whole > 0, part / whole.clamp(min=1), torch.ones_like(whole))


def _first(wrong: Tensor, targets: Tensor) -> tuple[str, str]:
    """Return the first example that is wrong, counted through leading dimensions, and its value."""
    place = int(wrong.reshape(-1).int().argmax())
    width = 1 if targets.ndim == 1 else targets.shape[-1]
    return f"example {place // width + 1}", shown(targets.reshape(-1)[place].item())
