"""Work on tensors of a few shapes, replayed from CUDA graphs where there is a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engram.engine._recorded import WARM_UP, recording

_Kind = tuple[tuple[torch.Size, torch.dtype], ...]


class Replayed:
    """A function of tensors that may change state in place, as one CUDA graph on a GPU.

    ``work`` returns a tensor of its own and reads nothing back to the host. Calls are of one kind
    where all that is given has the same shapes and dtypes. The first calls of a kind are plain
    ones, so that its kernels are loaded and whatever it allocates once is there; then one is
    recorded, and from there on replayed. Every call does its work once.

    What ``work`` finds elsewhere than among the given is captured by its address: whoever puts
    something else in its place has to ``forget``.
    """

    def __init__(self, work: Callable[..., Tensor]) -> None:
        self._work = work
        self._graphs: dict[_Kind, _Graph] = {}
        self._seen: Counter[_Kind] = Counter()

    def __call__(self, *given: Tensor) -> Tensor:
        """Return what ``work`` does of the given."""
        if not given[0].is_cuda:
            return self._work(*given)
        kind = tuple((tensor.shape, tensor.dtype) for tensor in given)
        if kind not in self._graphs:
            # Plain calls get copies too: laid out as the graph's, they take the same kernels.
            copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in given]
            if self._seen[kind] < WARM_UP:
                self._seen[kind] += 1
                return self._work(*copies)
            self._graphs[kind] = _Graph(self._work, copies)
        return self._graphs[kind].replay(given)

    def forget(self) -> None:
        """Drop what was recorded, and begin with plain calls again."""
        self._graphs.clear()
        self._seen.clear()


class _Graph:
    """One call, recorded: it reads and writes at the same addresses whenever it is replayed."""

    def __init__(self, work: Callable[..., Tensor], given: Sequence[Tensor]) -> None:
        self._given, self._graph = given, torch.cuda.CUDAGraph()
        with recording(self._graph, given[0].device):
            self._result = work(*given)

    def replay(self, given: Sequence[Tensor]) -> Tensor:
        for held, new in zip(self._given, given, strict=True):
            held.copy_(new)
        self._graph.replay()
        return self._result.clone()  # the next replay writes over it
