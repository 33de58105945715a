"""Work that is captured in CUDA graphs where there is a GPU: batch after batch, or call by call.

One launch of a graph takes the place of a thousand launches of kernels, which are what a small
network's step takes longest for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from engram.gradients import capturing
from engram.lab.benchmarks import Examples

WARM_UP = 2  # calls of each kind that are made as they are, before one is captured
TOGETHER = 2  # batches to a replay: what more of them save, capturing them takes
_LONG = 2_500  # the fewest batches of a task in which several to a replay pay


class Step(NamedTuple):
    """A batch that is to be computed, for every run."""

    number: int  # a captured step stands for others of its kind, whatever their number
    inputs: Tensor  # [R, B, ...], as stored
    labels: Tensor  # [R, B]
    position: Tensor | None  # [1], the number on the device, where a step goes by that


class CudaGraphLoop:
    """Goes through the batches of R runs' examples, one after another.

    ``advance`` says what is to be computed next, and its body computes it:

        while loop.step < len(loop):
            with loop.advance() as steps:
                for number, inputs, labels, position in steps:
                    ...

    Without a GPU, or without ``capture``, that is one batch. On a GPU the body's work is captured
    for each ``kind`` of step, one batch or several to a graph, and from there on replayed: then
    there is nothing left for the body to do. Such a body reads nothing back to the host, and finds
    whatever depends on the step by its ``position``. Every batch is computed once, those before the
    capture too. ``together`` is how many batches are one replay; it may be set before the first.

    With an ``order`` [R, V] the batches are of the examples with these numbers, of which each may
    come several times.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        *,
        capture: bool,
        kind: Callable[[int], Hashable] = lambda step: None,  # noqa: ARG005
        order: Tensor | None = None,
    ) -> None:
        self.step = 0  # the next one
        self._examples, self._size, self._kind = examples, batch_size, kind
        self._order, self._runs = order, torch.empty(0)
        self._length = (examples.labels if order is None else order).shape[1]
        self._whole = self._length // batch_size  # batches that are not cut short
        self.together = TOGETHER if self._whole >= _LONG else 1
        self._position: Tensor | None = None
        if examples.inputs.is_cuda and capture:
            self._position = torch.zeros(1, dtype=torch.int64, device=examples.inputs.device)
            part = slice(0, self._whole * batch_size)
            shape = (len(examples.labels), self._whole, batch_size)
            if order is None:
                self._inputs = examples.inputs[:, part].view(*shape, *examples.inputs.shape[2:])
                self._labels = examples.labels[:, part].view(shape)
            else:
                self._places = order[:, part].view(shape)
        if order is not None:
            self._runs = torch.arange(len(order), device=order.device).unsqueeze(1)
        self._graphs: dict[tuple[Hashable, int], torch.cuda.CUDAGraph] = {}
        self._seen: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return -(-self._length // self._size)

    def seek(self, step: int) -> None:
        """Go on with the batch of that number."""
        self.step = step
        if self._position is not None:
            self._position.fill_(step)

    @contextmanager
    def advance(self, stop: int | None = None) -> Iterator[Iterable[Step]]:
        """Yield the next batch or, given a ``stop``, those before it that one replay takes."""
        first = self.step
        if self._position is None or first >= self._whole:
            yield self._by_number(first)
            self.step = first + 1
            return
        kind = self._kind(first)
        if self._seen[kind] < WARM_UP:
            self._seen[kind] += 1
            yield self._by_position(first, 1, self._position)
            self.step = first + 1
            return
        count = self._count(first, kind, first + 1 if stop is None else stop)
        if (kind, count) in self._graphs:
            yield ()
        else:
            self._graphs[kind, count] = torch.cuda.CUDAGraph()
            with capturing(self._graphs[kind, count], self._position.device):
                yield self._by_position(first, count, self._position)
        self._graphs[kind, count].replay()
        self.step = first + count

    def _count(self, step: int, kind: Hashable, stop: int) -> int:
        """Return how many batches, from this one of a kind on, one replay takes."""
        last = step + self.together
        if last > min(stop, self._whole):
            return 1
        alike = all(self._kind(each) == kind for each in range(step + 1, last))
        return self.together if alike else 1

    def _by_number(self, step: int) -> Iterator[Step]:
        part = slice(step * self._size, (step + 1) * self._size)
        if self._order is None:
            inputs, labels = (column[:, part] for column in self._examples)
        else:
            inputs, labels = self._at(self._order[:, part])
        yield Step(step, inputs, labels, None)

    def _at(self, places: Tensor) -> list[Tensor]:
        """Return the examples of these numbers [R, B], of each run's own."""
        return [column[self._runs, places] for column in self._examples]

    def _by_position(self, first: int, count: int, position: Tensor) -> Iterator[Step]:
        for step in range(first, first + count):
            if self._order is None:
                inputs = self._inputs.index_select(1, position).squeeze(1)
                labels = self._labels.index_select(1, position).squeeze(1)
            else:
                inputs, labels = self._at(self._places.index_select(1, position).squeeze(1))
            yield Step(step, inputs, labels, position)
            position.add_(1)


class CudaGraphFunction:
    """A function of tensors that may change state in place, as one CUDA graph on a GPU.

    ``function`` returns a tensor of its own and reads nothing back to the host. Calls are of one
    kind where all arguments have the same shapes and dtypes. The first calls of a kind are plain
    ones, so that its kernels are loaded and whatever it allocates once is there; then one is
    captured, and from there on replayed. Every call does its work once.

    What ``function`` finds elsewhere than among its arguments is captured by its address: whoever
    puts something else in its place has to ``forget``.
    """

    def __init__(self, function: Callable[..., Tensor], *, capture: bool = True) -> None:
        self._function, self._capture = function, capture
        self._graphs: dict[_Kind, _CapturedCall] = {}
        self._seen: Counter[_Kind] = Counter()

    def __call__(self, *given: Tensor) -> Tensor:
        """Return what the function does."""
        if not (given[0].is_cuda and self._capture):
            return self._function(*given)
        kind = tuple((tensor.shape, tensor.dtype) for tensor in given)
        if kind not in self._graphs:
            # Plain calls get copies too: with the strides of the graph's, they take its kernels.
            copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in given]
            if self._seen[kind] < WARM_UP:
                self._seen[kind] += 1
                return self._function(*copies)
            self._graphs[kind] = _CapturedCall(self._function, copies)
        return self._graphs[kind].replay(given)

    def forget(self) -> None:
        """Drop what was captured, and begin with plain calls again."""
        self._graphs.clear()
        self._seen.clear()


_Kind = tuple[tuple[torch.Size, torch.dtype], ...]


class _CapturedCall:
    """One call: it reads and writes at the same addresses whenever it is replayed."""

    def __init__(self, function: Callable[..., Tensor], given: Sequence[Tensor]) -> None:
        self._given, self._graph = given, torch.cuda.CUDAGraph()
        with capturing(self._graph, given[0].device):
            self._result = function(*given)

    def replay(self, given: Sequence[Tensor]) -> Tensor:
        for held, new in zip(self._given, given, strict=True):
            held.copy_(new)
        self._graph.replay()
        return self._result.clone()  # the next replay writes over it


@contextmanager
def unchecked() -> Iterator[None]:
    """Let torch not look whether indices occur twice, in order to go through them one by one.

    Where the same bits are asked for each time it does, and waits for the device. This is for what
    scatters to no place twice.
    """
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode(0)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
