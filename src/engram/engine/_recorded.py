"""Work on batch after batch, recorded in CUDA graphs where there is a GPU."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from engram.streams import Examples

Visit = Callable[[int, Tensor, Tensor, Tensor | None], None]

WARM_UP = 2  # batches of each kind that are visited as they are, before one is recorded
TOGETHER = 2  # batches to a replay: what more of them save, recording them takes
_LONG = 2_500  # the fewest batches of a task in which several to a replay pay


class Recorded:
    """Visits the batches of R runs' examples one after the other.

    ``visit(step, inputs, labels, position)`` does the work on batch ``step``. With ``record``, on
    a GPU, it is recorded for each ``kind`` of step and replayed for the others, one batch or
    several to a replay, so that the host launches one graph instead of a thousand kernels; it then
    finds its data by ``position`` [1], its number on the device. Every visit is a real one, those
    before the recording too. ``together`` is how many batches are one replay; it may be set before
    the first is taken.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        visit: Visit,
        *,
        record: bool,
        kind: Callable[[int], Hashable] = lambda step: None,  # noqa: ARG005
    ) -> None:
        self._examples, self._size, self._visit, self._kind = examples, batch_size, visit, kind
        self._whole = examples.labels.shape[1] // batch_size  # batches that are not cut short
        self.together = TOGETHER if self._whole >= _LONG else 1
        self._position: Tensor | None = None
        if examples.inputs.is_cuda and record:
            self._position = torch.zeros(1, dtype=torch.int64, device=examples.inputs.device)
            part = slice(0, self._whole * batch_size)
            shape = (len(examples.labels), self._whole, batch_size)
            self._inputs = examples.inputs[:, part].view(*shape, *examples.inputs.shape[2:])
            self._labels = examples.labels[:, part].view(shape)
        self._graphs: dict[tuple[Hashable, int], torch.cuda.CUDAGraph] = {}
        self._seen: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return -(-self._examples.labels.shape[1] // self._size)

    def skip(self, steps: int) -> None:
        """Leave out the first batches, which were visited before."""
        if self._position is not None:
            self._position.fill_(steps)

    def take(self, step: int, stop: int | None = None) -> int:
        """Visit the batch of that number; return the number of the next one.

        Given a ``stop``, those before it that go with it in one replay are visited as well.
        Batches are visited in order.
        """
        if self._position is None or step >= self._whole:
            part = slice(step * self._size, (step + 1) * self._size)
            self._visit(step, self._examples.inputs[:, part], self._examples.labels[:, part], None)
            return step + 1
        kind = self._kind(step)
        if self._seen[kind] < WARM_UP:
            self._seen[kind] += 1
            self._visit_by_position(step, self._position)
            return step + 1
        count = self._count(step, kind, step + 1 if stop is None else stop)
        if (kind, count) not in self._graphs:
            self._graphs[kind, count] = torch.cuda.CUDAGraph()
            with recording(self._graphs[kind, count], self._position.device):
                for each in range(step, step + count):
                    self._visit_by_position(each, self._position)
        self._graphs[kind, count].replay()
        return step + count

    def take_all(self) -> None:
        """Visit every batch."""
        step = 0
        while step < len(self):
            step = self.take(step, len(self))

    def _count(self, step: int, kind: Hashable, stop: int) -> int:
        """Return how many batches, from this one of a kind on, are visited at once."""
        last = step + self.together
        if last > min(stop, self._whole):
            return 1
        alike = all(self._kind(each) == kind for each in range(step + 1, last))
        return self.together if alike else 1

    def _visit_by_position(self, step: int, position: Tensor) -> None:
        inputs = self._inputs.index_select(1, position).squeeze(1)
        labels = self._labels.index_select(1, position).squeeze(1)
        self._visit(step, inputs, labels, position)
        position.add_(1)


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Record in a graph what is done on a device.

    Left to itself torch records what is done on the GPU that was the first to be recorded, and
    other GPUs' work would be done once, and missing in the graph. And while it records, nothing may
    be collected: the end of an older graph, of a run that is over, spoils the new one.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.device(device), torch.cuda.graph(graph, stream=_stream(device)):
            yield
    finally:
        if collects:
            gc.enable()


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream that a device's work is recorded on."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
