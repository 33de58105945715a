"""The steps of one task, captured in CUDA graphs where there is a GPU and the method allows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import torch
from torch import Tensor

from engram.engine import Batch
from engram.methods import Method
from engram.streams import Examples, Stream

_WARM_UP = 2  # steps of each kind that run as they are, before one is captured


class TaskSteps:
    """Takes a task's steps one after the other.

    A captured step is recorded once for each kind of step and replayed for the others, so the
    host launches one graph instead of a hundred kernels. It finds its data by its number on the
    device. Every step is a real one, those that warm up the recording too.
    """

    def __init__(self, method: Method, stream: Stream, examples: Examples, batch_size: int) -> None:
        self.method, self.stream, self.examples = method, stream, examples
        self.batch_size = batch_size
        self._whole = examples.labels.shape[1] // batch_size  # batches that are not cut short
        self._position: Tensor | None = None
        if examples.inputs.is_cuda and method.capturable:
            self._position = torch.zeros(1, dtype=torch.int64, device=examples.inputs.device)
            part = slice(0, self._whole * batch_size)
            shape = (len(examples.labels), self._whole, batch_size)
            self._inputs = examples.inputs[:, part].view(*shape, *examples.inputs.shape[2:])
            self._labels = examples.labels[:, part].view(shape)
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._seen: Counter[Hashable] = Counter()

    def take(self, step: int) -> None:
        """Take the task's step of that number; they are taken in order."""
        if self._position is None or step >= self._whole:
            self._take_plainly(step)
            return
        kind = self.method.kind(step)
        if kind in self._graphs:
            self._graphs[kind].replay()
        elif self._seen[kind] < _WARM_UP:
            self._seen[kind] += 1
            self._take_by_position(step, self._position)
        else:
            self._graphs[kind] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graphs[kind]):
                self._take_by_position(step, self._position)
            self._graphs[kind].replay()

    def _take_plainly(self, step: int) -> None:
        part = slice(step * self.batch_size, (step + 1) * self.batch_size)
        self.method.locate(None)
        self._observe(step, self.examples.inputs[:, part], self.examples.labels[:, part])

    def _take_by_position(self, step: int, position: Tensor) -> None:
        self.method.locate(position)
        stored = self._inputs.index_select(1, position).squeeze(1)
        self._observe(step, stored, self._labels.index_select(1, position).squeeze(1))
        position.add_(1)

    def _observe(self, step: int, stored: Tensor, labels: Tensor) -> None:
        self.method.observe(step, stored, Batch(self.stream.normalise(stored), labels))
