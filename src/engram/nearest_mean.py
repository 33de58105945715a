"""Answers by the nearest mean of what is remembered, as iCaRL gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from engram.errors import EngramError, shown
from engram.memory import Memory

__all__ = ["NearestMean", "distances"]

_AT_ONCE = 1_000


class NearestMean:
    """Classifies by the nearest mean of a memory's examples (Rebuffi et al. 2017).

    The answer is −distance to the mean of each class's outputs, where the examples of a class that
    came with several tasks have a mean for each of those, and the nearest counts. The means are
    those at the model's weights when `refresh` was last called, or at first use; call it whenever
    the model has learnt. The model is in its evaluation mode meanwhile.

    Args:
        model: what gives the outputs, ``model(*inputs)``; a `Learner`'s, or any other.
        memory: whose examples are ``(*inputs, classes)``, or have labels of their own.
        features: what to compare in place of the model's outputs: a function of one example's
            inputs in a batch, ``features(*inputs)``, that gives ``[B, ...]``.

    >>> from engram.memory import Memory, Reservoir
    >>> memory = Memory(Reservoir(10))
    >>> memory.add((torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 2])))
    >>> NearestMean(nn.Identity(), memory)(torch.tensor([[1.0], [4.0]]))
    tensor([[-0.5000,    -inf, -4.0000],
            [-3.5000,    -inf, -1.0000]])
    """

    def __init__(
        self, model: nn.Module, memory: Memory, *, features: Callable[..., Tensor] | None = None
    ) -> None:
        if not isinstance(memory, Memory):
            raise EngramError(f"memory must be a Memory, not {shown(memory)}.")
        if not callable(model) or not (features is None or callable(features)):
            raise EngramError("model, and features where they are given, must be callable.")
        self.model = model
        self.memory = memory
        self._features = model if features is None else features
        self._means: dict[int, tuple[Tensor, Tensor]] | None = None

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the means of what is remembered now, at the model's present weights."""
        sums, counts = dict[tuple[int, int], Tensor](), dict[tuple[int, int], int]()
        with self._evaluating():
            for inputs, tasks, labels in self._remembered():
                outputs = self._outputs(inputs)
                for task, label in set(zip(tasks.tolist(), labels.tolist(), strict=True)):
                    mine = outputs[(tasks == task) & (labels == label)]
                    total, key = mine.sum(0), (task, label)
                    sums[key] = sums[key] + total if key in sums else total
                    counts[key] = counts.get(key, 0) + len(mine)
        self._means = {}
        classes = 1 + max(label for _, label in sums)
        for task in sorted({task for task, _ in sums}):
            known = {
                label: sums[task, label] / counts[task, label]
                for label in range(classes)
                if (task, label) in sums
            }
            some = next(iter(known.values()))
            means = torch.stack([known.get(c, torch.zeros_like(some)) for c in range(classes)])
            empty = torch.tensor([c not in known for c in range(classes)], device=some.device)
            self._means[task] = means, empty

    @torch.no_grad()
    def __call__(self, *inputs: Tensor, task: int | None = None) -> Tensor:
        """Return −distances ``[B, classes]``, −inf of a class without examples.

        With ``task`` the means of that task's examples alone decide.
        """
        if self._means is None:
            self.refresh()
        assert self._means is not None
        if task is not None and task not in self._means:
            raise EngramError(f"The memory holds no example of task {shown(task)}.")
        chosen = [*self._means.values()] if task is None else [self._means[task]]
        means, empty = (torch.stack(parts).unsqueeze(0) for parts in zip(*chosen, strict=True))
        with self._evaluating():
            outputs = self._outputs(inputs)
        return -distances(outputs.unsqueeze(0), means, empty)[0]

    def _outputs(self, inputs: Sequence[Tensor]) -> Tensor:
        outputs = self._features(*inputs)
        if not isinstance(outputs, Tensor) or outputs.dim() < 2:
            raise EngramError(
                "The model must give outputs, one row an example; say which to compare by "
                "features=."
            )
        return outputs.flatten(1)

    def _remembered(self) -> Iterator[tuple[Sequence[Tensor], Tensor, Tensor]]:
        """Yield inputs, tasks and labels of all that is held."""
        held = len(self.memory)
        if not held:
            raise EngramError("The memory holds no example to take a mean of.")
        for start in range(0, held, _AT_ONCE):
            sample = self.memory.read(np.arange(start, min(start + _AT_ONCE, held)))
            batch = sample.batch
            if not isinstance(batch, tuple | list) or len(batch) < 2:
                raise EngramError("Examples must be (*inputs, classes) for means of classes.")
            labels = sample.labels
            if labels is None:
                labels = batch[-1]
                if labels.dim() != 1 or labels.is_floating_point():
                    raise EngramError("The memory's examples have no labels to take means by.")
            tasks = torch.zeros_like(labels) if sample.tasks is None else sample.tasks
            yield batch[:-1], tasks, labels

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        modules = self.model.modules() if isinstance(self.model, nn.Module) else ()
        modes = {module: module.training for module in modules}
        if isinstance(self.model, nn.Module):
            self.model.eval()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def distances(outputs: Tensor, means: Tensor, empty: Tensor) -> Tensor:
    """Return how far outputs [R, B, F] are from the nearest of each class's means, [R, B, C].

    ``means`` [R, T, C, F] are those of each task's examples, and ``empty`` [R, T, C] says which
    there are none of; a class without any example is infinitely far.
    """
    every = torch.cdist(
        outputs.unsqueeze(1), means, compute_mode="donot_use_mm_for_euclid_dist"
    )  # [R, T, B, C]
    return every.masked_fill(empty.unsqueeze(2), torch.inf).amin(1)
