"""Streams of one's own tensors or arrays, from Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, shown, unknown
from engram.lab.benchmarks.own_data import (
    OwnBenchmark,
    OwnImageSettings,
    OwnSettings,
    OwnStream,
    OwnTasks,
    checked,
    grouped,
    held_out,
    own_benchmark,
    plain,
    with_values,
)
from engram.lab.benchmarks.registry import register
from engram.lab.benchmarks.split import Part
from engram.lab.benchmarks.stream import PERCEPTRONS
from engram.lab.data import ImageSet
from engram.lab.networks import MLP, Network, ResNet
from engram.lab.targets import Labels, Numbers

Pair = tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]]
_Arrays = tuple[NDArray[Any], NDArray[Any]]  # inputs, 8-bit or float32, and labels

_HIDDEN = 256
_KINDS = ("classes", "labels", "numbers")


class TensorStream(OwnStream):
    """Tensors as they are, but for 8-bit ones, which are scaled to [0, 1]."""

    def network(self) -> Network:
        """Return the reduced ResNet-18 for images [3, H, W], else two hidden layers of 256.

        Where training starts from a file it is the network of that kind that the file is of.
        """
        images, start = self._own.examples.train_images.ndim == 4, self._checkpoint
        if start is not None and images:
            return start.resnet(self.classes, autocast=False)
        if start is not None:
            return start.mlp(self.features, self.classes)
        if images:
            return ResNet(self.classes)
        return MLP((self.features, _HIDDEN, _HIDDEN, self.classes))

    def normalise(self, inputs: Tensor) -> Tensor:
        """Scale 8-bit inputs to [0, 1]."""
        return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs.float()


def from_tensors(
    tasks: Sequence[Pair],
    tests: Sequence[Pair] | None = None,
    *,
    name: str = "tensors",
    target_kind: str = "classes",
) -> OwnBenchmark:
    """Make tasks of ``(inputs, labels)`` pairs known to this process as the benchmark ``name``.

    Inputs are [N, features] for a fully connected network, or [N, 3, height, width] for a
    ResNet-18; labels are whole numbers or texts, [N]. ``tests`` has a pair for every task; without
    them a share of every class of every task is held out (the setting ``test_share``). With the
    ``target_kind`` "labels" they are [N, labels] of 0 and 1, with "numbers" [N] or [N, numbers].

    >>> import engram.lab.protocol, engram.lab.benchmarks
    >>> source = torch.Generator().manual_seed(0)
    >>> tasks = []
    >>> for turn in (0.0, 0.8, 1.6):  # the same two classes, turned from task to task
    ...     labels = torch.randint(2, (100,), generator=source)
    ...     angles = turn + 3.14 * labels + 0.1 * torch.randn(100, generator=source)
    ...     tasks.append((torch.stack([angles.cos(), angles.sin()], 1), labels))
    >>> mine = engram.lab.benchmarks.from_tensors(tasks, name="turning")
    >>> spec = engram.lab.protocol.specify("turning", "mega-ii")
    >>> outcome, = engram.lab.protocol.run(spec, seeds=[0])
    >>> outcome.accuracy[-1]  # on each task, after the last
    [1.0, 1.0, 1.0]
    """
    usual = plain(name) if isinstance(name, str) else ""
    if not usual or name != usual:
        raise EngramError(
            f"name must be of small letters, digits and hyphens, as {usual or 'mine'!r}, "
            f"not {shown(name)}."
        )
    if not isinstance(target_kind, str) or target_kind not in _KINDS:
        raise unknown("target_kind", target_kind, _KINDS)
    train = _checked_arrays("tasks", tasks, target_kind)
    test = train if tests is None else _checked_arrays("tests", tests, target_kind)
    if len(test) != len(train) or test[0][0].shape[1:] != train[0][0].shape[1:]:
        raise EngramError(
            "tests must have a pair for each task, of the same shape: "
            f"{_sizes(train)} in tasks, {_sizes(test)} in tests."
        )
    read = partial(_tasks, train, None if tests is None else test, target_kind)
    read(OwnImageSettings())  # so that what is wrong is said at once
    images = train[0][0].ndim == 4
    own = own_benchmark(
        "tensors",
        name,
        OwnImageSettings,
        like="split-cifar" if images else "permuted-mnist",
        read=read,
        build=TensorStream,
        stacks=1 if images else PERCEPTRONS,
    )
    register(name, own)
    return own


def _tasks(
    train: list[_Arrays], test: list[_Arrays] | None, kind: str, settings: OwnSettings
) -> OwnTasks:
    every = [*train, *(test or ())]
    answers = np.concatenate([mine for _, mine in every])
    if kind == "classes":
        classes, labels = np.unique(answers, return_inverse=True)
    else:
        classes, labels = np.array([], str), np.zeros(len(answers), np.int64)
    digest = hashlib.sha256()
    for inputs, _ in every:
        digest.update(f"{inputs.dtype} {inputs.shape}".encode() + inputs.tobytes())
    sizes = np.cumsum([len(mine) for _, mine in every])[:-1]
    rows = np.split(np.arange(len(labels)), sizes)
    inputs = np.concatenate([mine for mine, _ in every])
    examples = ImageSet(
        inputs, labels, inputs, labels, tuple(map(str, classes)), digest.hexdigest()
    )
    numbered = [f"task {task + 1}" for task in range(len(train))]
    if kind != "classes":
        given = [
            (mine, None if test is None else rows[len(train) + task])
            for task, mine in enumerate(rows[: len(train)])
        ]
        groups, parts = grouped(answers, kind, given, settings)
        names = [f"{kind.removesuffix('s')} {place + 1}" for place in range(answers.shape[1])]
        own = with_values(OwnTasks(examples, parts, numbered), answers, groups, kind, names)
        return checked(own, "tasks", "give tests")
    parts = [
        held_out(mine, labels[mine], task, settings.test_share)
        if test is None
        else Part(mine, labels[mine], rows[len(train) + task], labels[rows[len(train) + task]])
        for task, mine in enumerate(rows[: len(train)])
    ]
    return checked(OwnTasks(examples, parts, numbered), "tasks", "give tests")


def _sizes(arrays: Sequence[_Arrays]) -> str:
    return f"{len(arrays)} of {list(arrays[0][0].shape[1:])}"


def _checked_arrays(name: str, pairs: Sequence[Pair], kind: str) -> list[_Arrays]:
    """Return the inputs and labels of each task; EngramError says what is wrong with one."""
    if not isinstance(pairs, Sequence) or not pairs:
        raise EngramError(f"{name} must be a list of pairs (inputs, labels), one for each task.")
    arrays = [_pair(f"{name}[{place}]", pair, kind) for place, pair in enumerate(pairs)]
    first, wanted = arrays[0]
    for place, (inputs, labels) in enumerate(arrays):
        if labels.shape[1:] != wanted.shape[1:]:
            raise EngramError(
                f"{name}[{place}] must have {kind} like those of {name}[0], [N, "
                f"{wanted.shape[1]}], not {list(labels.shape)}."
            )
        if inputs.shape[1:] != first.shape[1:] or inputs.dtype != first.dtype:
            raise EngramError(
                f"{name}[{place}] must have inputs like those of {name}[0], {first.dtype} "
                f"{list(first.shape[1:])}, not {inputs.dtype} {list(inputs.shape[1:])}."
            )
    return arrays


def _pair(name: str, pair: Pair, kind: str) -> _Arrays:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise EngramError(f"{name} must be a pair (inputs, labels), not a {type(pair).__name__}.")
    inputs, labels = (_array(name, part) for part in pair)
    images = inputs.ndim == 4 and inputs.shape[1] == 3
    if kind == "numbers" and labels.ndim == 1:
        labels = labels[:, np.newaxis]
    plural = kind != "classes"
    shaped = labels.ndim == 1 + plural and (not plural or labels.shape[1] > 0)
    same = shaped and labels.shape[:1] == inputs.shape[:1]
    if not (inputs.ndim == 2 or images) or not same or not len(labels):
        wanted = f"{kind} [N, {kind}]" if plural else "labels [N]"
        raise EngramError(
            f"{name} must have inputs [N, features] or [N, 3, height, width] and {wanted}, "
            f"not {list(inputs.shape)} and {list(labels.shape)}."
        )
    if plural:
        labels = _values(name, kind, labels)
    elif labels.dtype.kind not in "iubU":
        raise EngramError(
            f"The labels of {name} must be whole numbers or texts, not {labels.dtype}."
        )
    if inputs.dtype != np.uint8:
        if inputs.dtype.kind not in "fiub":
            raise EngramError(f"The inputs of {name} must be numbers, not {inputs.dtype}.")
        inputs = inputs.astype(np.float32)
        if not np.isfinite(inputs).all():
            raise EngramError(f"The inputs of {name} must be finite, and one is not.")
    return inputs, labels


def _values(name: str, kind: str, labels: NDArray[Any]) -> NDArray[np.float64]:
    """Return labels or numbers as floats, or refuse those that are none."""
    if labels.dtype.kind not in "fiub":
        raise EngramError(f"The {kind} of {name} must be numbers, not {labels.dtype}.")
    values = labels.astype(np.float64)
    names = tuple(map(str, range(values.shape[1])))
    try:
        (Labels(names) if kind == "labels" else Numbers(names)).check(torch.from_numpy(values))
    except EngramError as error:
        raise EngramError(f"The {kind} of {name} cannot be learned: {error}") from None
    return values


def _array(name: str, part: object) -> NDArray[Any]:
    try:
        return part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, sparse, without values
        raise EngramError(f"{name} must be of arrays, not {shown(part)}: {error}.") from error
