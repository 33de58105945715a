"""Whole training steps as CUDA graphs: one launch in the place of hundreds."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import Optimizer

from engram.errors import EngramError, shown
from engram.gradients.finite import Guard
from engram.gradients.mixing import Mix

_WARM_UP = 3  # steps of each kind that are taken as they are, before one is captured

_Given: TypeAlias = Mapping[int | str, Tensor]
"""A call's arguments, by their place or their name."""


class CapturedStep:
    """A step of training that is replayed as one CUDA graph; see `GradientMixer.capture`."""

    def __init__(self, step: Callable[..., Any], optimizer: Optimizer, guard: Guard) -> None:
        self._step, self._optimizer, self._guard = step, optimizer, guard
        self._facts: Hashable = None
        self._graphs: dict[Hashable, _Graph] = {}
        self._seen: Counter[Hashable] = Counter()

    def __call__(self, *batch: Tensor, **named: Tensor) -> Any:  # noqa: ANN401  # the step's own
        """Take one step, and return what it returns."""
        given: dict[int | str, Tensor] = dict(enumerate(batch))
        given.update(named)
        for name, each in given.items():
            if not isinstance(each, Tensor):
                raise EngramError(
                    "A captured step takes tensors, which are copied to where the graph reads; "
                    f"its argument {name!r} is {shown(each)}."
                )
        device = next((each.device for each in given.values() if each.is_cuda), None)
        if device is None:
            return self._step(*batch, **named)
        if self._facts != (facts := _facts(self._optimizer)):
            self._graphs.clear()
            self._seen.clear()
            self._facts = facts
        kind = tuple((name, each.shape, each.dtype, each.device) for name, each in given.items())
        if self._seen[kind] < _WARM_UP:
            self._seen[kind] += 1
            return self._take(given, device)
        if kind not in self._graphs:
            self._graphs[kind] = _Graph(self._step, given, device)
        result = self._graphs[kind].replay(given)
        if self._guard.replayed():
            self._guard.settle()
        return result

    def _take(self, given: _Given, device: torch.device) -> Any:  # noqa: ANN401
        """Take a plain step on the stream of the capture: what autograd keeps belongs to one."""
        current, stream = torch.cuda.current_stream(device), _stream(device)
        stream.wait_stream(current)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            result = _call(self._step, given)
        current.wait_stream(stream)
        return result


class _Graph:
    """One step that was captured: it reads and writes at the same addresses at every replay."""

    def __init__(self, step: Callable[..., Any], given: _Given, device: torch.device) -> None:
        self._held = {name: each.clone() for name, each in given.items()}
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        try:
            with capturing(self._graph, device):
                self._result = _call(step, self._held)
        except RuntimeError as error:
            reason = str(error).splitlines()[0].rstrip(". ")
            raise EngramError(
                f"The step cannot be captured as a CUDA graph: {reason}. In a captured step "
                "nothing is read back to the host, and nothing is copied from it; take another "
                "step as it is."
            ) from error

    def replay(self, given: _Given) -> Any:  # noqa: ANN401
        for name, new in given.items():
            self._held[name].copy_(new, non_blocking=True)
        self._graph.replay()
        return _copied(self._result)  # the next replay writes over it


def _call(step: Callable[..., Any], given: _Given) -> Any:  # noqa: ANN401
    places = [each for name, each in given.items() if isinstance(name, int)]
    names = {name: each for name, each in given.items() if isinstance(name, str)}
    return step(*places, **names)


def _facts(optimizer: Optimizer) -> Hashable:
    """Return what a graph has taken over from an optimiser: its numbers, and its parameters."""
    facts: list[Hashable] = []
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name == "params":
                facts.extend((id(each), each.data_ptr(), each.requires_grad) for each in value)
            else:
                facts.append((name, id(value) if isinstance(value, Tensor) else repr(value)))
    return tuple(facts)


def _copied(result: Any) -> Any:  # noqa: ANN401
    """Return a step's result with a copy of every tensor in it."""
    if isinstance(result, Tensor):
        return result.detach().clone()
    if isinstance(result, Mix):
        gram = None if result.gram is None else result.gram.clone()
        return replace(
            result, losses=result.losses.clone(), gram=gram, weights=result.weights.clone()
        )
    if isinstance(result, tuple | list):
        return type(result)(map(_copied, result))
    if isinstance(result, dict):
        return {name: _copied(each) for name, each in result.items()}
    return result


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Capture in a graph what is done on a device.

    Left to itself torch captures what is done on the GPU that was the first to be captured, and
    other GPUs' work would be done once, and missing in the graph. And while it captures, nothing
    may be collected: the end of an older graph, of a run that is over, spoils the new one.
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
    """Return the stream that a device's work is captured on."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
