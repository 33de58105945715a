"""The matrix products of a step and nothing else: what no step can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from engram.gradients import capturing
from engram.lab.engine import TOGETHER
from engram.lab.networks import Branches


def products(
    sizes: Sequence[int], batches: Sequence[int], runs: int, device: str
) -> Callable[[], None]:
    """Return the products of R networks' passes over batches of these sizes.

    For each layer of a pass there are the product of its inputs with the weights, that of its
    inputs with the gradient, and (but for the first) that of the gradient with the weights. On a
    GPU the passes go side by side, as they do in a step.
    """
    passes = [_Products(sizes, batch, runs, device) for batch in batches]

    def multiply() -> None:
        branches = Branches(torch.device(device))
        for each in passes:
            with branches.branch():
                each.multiply()
        branches.join()

    return multiply


def captured_products(
    sizes: Sequence[int], batches: Sequence[int], runs: int, device: str
) -> Callable[[int, int], int]:
    """Return replays of the products, as many to each as there are steps to that of a run."""
    multiply = products(sizes, batches, runs, device)
    multiply()
    torch.cuda.synchronize()
    graphs = [torch.cuda.CUDAGraph() for _ in range(TOGETHER)]
    for count, graph in enumerate(graphs, 1):
        with capturing(graph, torch.device(device)):
            for _ in range(count):
                multiply()

    def replay(step: int, stop: int) -> int:
        count = min(TOGETHER, stop - step)
        graphs[count - 1].replay()
        return step + count

    return replay


class _Products:
    """The products of one pass over a batch, [R, B, ...]; they go to places of their own."""

    def __init__(self, sizes: Sequence[int], batch: int, runs: int, device: str) -> None:
        def rand(*shape: int) -> Tensor:
            return torch.rand(runs, *shape, device=device)

        self._layers = list(pairwise(sizes))
        self._weights = [rand(*layer) for layer in self._layers]
        self._gradients = [rand(*layer) for layer in self._layers]
        self._inputs = [rand(batch, size) for size in sizes]
        self._errors = [rand(batch, size) for size in sizes]

    def multiply(self) -> None:
        for layer, weight in enumerate(self._weights):
            torch.bmm(self._inputs[layer], weight, out=self._inputs[layer + 1])
        for layer in reversed(range(len(self._layers))):
            error = self._errors[layer + 1]
            torch.bmm(self._inputs[layer].transpose(1, 2), error, out=self._gradients[layer])
            if layer:
                turned = self._weights[layer].transpose(1, 2)
                torch.bmm(error, turned, out=self._errors[layer])
