"""The exam: examples of every past period that no version is trained on, and what they say.

Whether an example is held out depends on its input alone, by a hash of it: a duplicate is on the
same side in every period. Examples of one customer may be on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError
from engram.lab.targets import Classes, Labels, Target
from engram.memory import ClassRing, Memory
from engram.production.preprocessing import (
    TARGET,
    CategoryColumn,
    Preprocessing,
    Rows,
    TableInputs,
)
from engram.production.sources import IMAGES, Data, listed

_ALL = 2**40  # an exam gives nothing up
_BINS = 15  # of confidence, for the calibration error


class Split(NamedTuple):
    """The rows of some data to train on and to be examined by, and those for neither."""

    train: list[int]
    exam: list[int]
    examined_before: int  # left out of the training: they are in the exam of an earlier period
    trained_before: int  # left out of the exam: an earlier version was trained on them
    examined_again: int = 0  # left out of the exam: an earlier one has them


def split(
    data: Data,
    chances: Sequence[float],
    seen: Sequence[tuple[bool, bool]],
    again: Sequence[bool],
    share: float,
    most: int,
) -> Split:
    """Hold out a share of the data; ``seen`` says of each whether it was examined, or trained on.

    ``chances`` are draws from [0, 1) that depend on the inputs alone. ``again`` says which examples
    were given before: they are not asked twice, which would count for more evidence than it is.
    """
    share = min(share, most / max(len(data), 1))
    train, exam, examined, trained, twice = [], [], 0, 0, 0
    for row, (chance, (was_examined, was_trained)) in enumerate(zip(chances, seen, strict=True)):
        if chance < share:
            if was_trained:
                trained += 1
            elif again[row]:
                twice += 1
            else:
                exam.append(row)
        elif was_examined:
            examined += 1
        else:
            train.append(row)
    return Split(train, exam, examined, trained, twice)


def new_exam() -> Memory:
    """Return an exam without examples: a memory that keeps all it is given."""
    return Memory(ClassRing(_ALL, include_current=True))


@dataclass(frozen=True)
class Questions:
    """All examples of an exam as rows of today's width, with what they are found by."""

    rows: Rows
    periods: NDArray[np.int64]
    ids: list[str]
    tags: list[Mapping[str, str]]

    def __len__(self) -> int:
        return len(self.ids)

    def slices(self, name: str, preprocessing: Preprocessing) -> list[str]:
        """Return the value of each example in a column of texts, a tag or the target."""
        check_slice(name, preprocessing)
        settings, inputs = preprocessing.settings, preprocessing.inputs
        if name in listed(settings.tags):
            return [str(tags.get(name, "")) for tags in self.tags]
        if isinstance(inputs, TableInputs):
            for place, column in enumerate(inputs.categories):
                if column.name == name:
                    codes = self.rows["codes"][:, place].tolist() if len(self) else []
                    return [_text(column, code) for code in codes]
        names = preprocessing.target.names
        return [names[place] for place in self.rows[TARGET].tolist()] if len(self) else []


def check_slice(name: str, preprocessing: Preprocessing) -> None:
    """Refuse a column that cannot be sliced by."""
    settings, inputs = preprocessing.settings, preprocessing.inputs
    target = settings.target or IMAGES
    known = listed(settings.tags) + ([target] if preprocessing.classes else [])
    if isinstance(inputs, TableInputs):
        known = [each.name for each in inputs.categories] + known
        if name in inputs.names and name not in known:
            raise EngramError(
                f"slice must be a column of texts, a tag or the target; {name!r} is a column of "
                "numbers: add a column of its ranges."
            )
    if name not in known:
        raise EngramError(
            f"There is no column of texts, tag or target called {name!r} to slice by; there are "
            f"{', '.join(known) or 'none'}."
        )


def _text(column: CategoryColumn, code: int) -> str:
    text = column.known[code].text if 0 <= code < len(column.known) else None
    return "(other)" if text is None else text or "(missing)"


def questions(exam: Memory, preprocessing: Preprocessing) -> Questions:
    """Return all examples of an exam."""
    if not len(exam):
        return Questions({}, np.zeros(0, np.int64), [], [])
    sample = exam.read(range(len(exam)))
    assert sample.tasks is not None
    return Questions(
        preprocessing.inputs.widened(sample.batch),
        sample.tasks.numpy(),
        [str(id_) for id_ in sample.ids],
        [{name: str(tag) for name, tag in (each.tags or {}).items()} for each in exam.examples()],
    )


class Answers(NamedTuple):
    """What a model answers an exam, example by example."""

    statistics: NDArray[np.float64]  # [n, S], of which the target's metric is made
    right: NDArray[np.bool_] | None  # whether all of it is right; None where numbers are asked for
    confidence: NDArray[np.float64] | None  # of the answer, of the label least sure; as above
    chances: NDArray[np.float64] | None  # of every class or label, and
    truths: NDArray[np.float64] | None  # whether it is, for labels


def assess(outputs: Tensor, targets: Tensor, target: Target, allowed: Tensor | None) -> Answers:
    """Return what outputs are worth; a model that lacks outputs never gives those answers."""
    lacking = target.outputs - outputs.shape[1]
    if lacking:
        outputs = torch.cat([outputs, torch.full((len(outputs), lacking), -torch.inf)], 1)
    mask = None if allowed is None else allowed.expand(len(outputs), -1)
    statistics = target.statistics(outputs, targets, mask).numpy()
    if isinstance(target, Classes):
        chances = target.probabilities(outputs.double(), mask)
        right = (target.predictions(outputs, mask) == targets).numpy()
        return Answers(statistics, right, chances.amax(1).numpy(), None, None)
    if isinstance(target, Labels):
        said = target.predictions(outputs)
        exact = (said == targets).all(1).numpy()
        chances = target.probabilities(outputs.double())
        sure = torch.maximum(chances, 1 - chances).amin(1).numpy()
        return Answers(statistics, exact, sure, chances.numpy(), targets.double().numpy())
    return Answers(statistics, None, None, None, None)


def metric(target: Target, statistics: NDArray[np.float64]) -> float:
    """Return the target's metric over examples; NaN of none."""
    if not len(statistics):
        return float("nan")
    return float(target.metric(torch.from_numpy(statistics.sum(0))))


def influences(target: Target, statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each example moves the metric, [n]: its linear part, of mean 0.

    The metric is a smooth function of the mean statistics; the variance of these values over n is
    that of the metric, to first order.
    """
    total = torch.from_numpy(statistics.sum(0)).requires_grad_()
    value = target.metric(total)
    if not value.requires_grad:
        return np.zeros(len(statistics))
    (slope,) = torch.autograd.grad(value, total)
    if not slope.isfinite().all():
        return np.full(len(statistics), np.inf)
    moved: NDArray[np.float64] = (statistics - statistics.mean(0)) @ slope.numpy()
    return moved * len(statistics)


def calibration_error(answers: Answers, rows: NDArray[np.bool_]) -> float | None:
    """Return the expected calibration error over 15 bins of confidence; None for numbers.

    Of labels it is that of each label's own probability, over all of them.
    """
    if answers.chances is not None and answers.truths is not None:
        sure, right = answers.chances[rows].ravel(), answers.truths[rows].ravel()
    elif answers.confidence is not None and answers.right is not None:
        sure, right = answers.confidence[rows], answers.right[rows].astype(np.float64)
    else:
        return None
    if not len(sure):
        return None
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, sure - right, _BINS)
    return float(np.abs(gaps).sum() / len(sure))
