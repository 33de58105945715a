"""The matrix of a step in plain numbers: on a CPU a number costs a tenth of a tensor of one.

A step of a small model is over in a few milliseconds, and in between everything has left the
processor's caches: what counts is how many different things are called, and how often.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Rows: TypeAlias = Sequence[Sequence[Tensor]]  # contiguous, of full precision, on the CPU

_CODES = {torch.float32: "f", torch.float64: "d"}


def as_tensor(numbers: Iterable[float], dtype: torch.dtype) -> Tensor:
    """Return the numbers as a vector; ``torch.tensor`` looks at each of them, in twice the time."""
    return torch.frombuffer(array(_CODES[dtype], numbers), dtype=dtype)


def dot_products(rows: Rows) -> list[list[float]]:
    """Return the Gram matrix; parameter by parameter, while its gradients are in the cache."""
    gram = [[0.0] * len(rows) for _ in rows]
    for column in zip(*rows, strict=True):
        vectors = column if column[0].dim() == 1 else [each.view(-1) for each in column]
        for products, left in zip(gram, vectors, strict=True):
            for place, right in enumerate(vectors):
                products[place] += left.dot(right).item()
                if right is left:
                    break  # what is right of the diagonal is what is below it
    for i, products in enumerate(gram):
        for j in range(i):
            gram[j][i] = products[j]
    return gram


def mixture(rows: Rows, weights: Sequence[float], dtype: torch.dtype) -> Sequence[Tensor]:
    """Return ``weights @ rows``, formed in the buffers of the first row."""
    leading, *others = weights
    factor = torch.full((), leading, dtype=dtype)  # a number would be made a tensor at each use
    for total, *gradients in zip(*rows, strict=True):
        if leading != 1:
            total.mul_(factor)
        for gradient, weight in zip(gradients, others, strict=True):
            if weight != 0:
                total.add_(gradient, alpha=weight)
    return rows[0]
