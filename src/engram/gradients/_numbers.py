"""The matrix of a step in plain numbers: on a CPU a number costs a tenth of a tensor of one.

A step of a small model is over in a few milliseconds, and in between everything has left the
processor's caches: what counts is how many different things are called, and how often.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Vectors: TypeAlias = Sequence[Sequence[Tensor]]  # rows, flat, of full precision, on the CPU

_PAIR = 2
_CODES = {torch.float32: "f", torch.float64: "d"}
_ONE = {dtype: torch.ones(1, dtype=dtype, device="cpu") for dtype in _CODES}


def as_tensor(numbers: Iterable[float], dtype: torch.dtype) -> Tensor:
    """Return the numbers as a vector; ``torch.tensor`` looks at each of them, in twice the time."""
    return torch.frombuffer(array(_CODES[dtype], numbers), dtype=dtype)


def dot_products(rows: Vectors) -> list[list[float]]:
    """Return the Gram matrix; parameter by parameter, while its gradients are in the cache.

    A product beyond the range is an infinity, as it is in torch, and the rule says what follows: a
    warning of numpy's beside it would be an error where warnings are errors.
    """
    with np.errstate(all="ignore"):
        if len(rows) == _PAIR:
            return _dot_products_of_two(rows[0], rows[1])
        return _dot_products_of_many(rows)


def _dot_products_of_many(rows: Vectors) -> list[list[float]]:
    gram = [[0.0] * len(rows) for _ in rows]
    for column in zip(*([each.numpy() for each in row] for row in rows), strict=True):
        for products, left in zip(gram, column, strict=True):
            for place, right in enumerate(column):
                products[place] += float(left.dot(right))
                if right is left:
                    break  # what is right of the diagonal is what is below it
    for i, products in enumerate(gram):
        for j in range(i):
            gram[j][i] = products[j]
    return gram


def _dot_products_of_two(row: Sequence[Tensor], other: Sequence[Tensor]) -> list[list[float]]:
    """Return it for the usual two, written out: a sixth less."""
    square = product = square_of_other = 0.0
    for vector, beside in zip(row, other, strict=True):
        # numpy's dot is a number at once: a fifth less than torch's, which is a tensor first.
        g, r = vector.numpy(), beside.numpy()
        square += float(g.dot(g))
        product += float(g.dot(r))
        square_of_other += float(r.dot(r))
    return [[square, product], [product, square_of_other]]


def mix_into_first(rows: Vectors, weights: Sequence[float]) -> None:
    """Form ``weights @ rows`` in the first row."""
    leading, *others = weights
    terms = [place for place, weight in enumerate(others, 1) if weight != 0]
    if len(rows) == _PAIR and terms and leading not in (0, 1):
        _mix_two(rows[0], rows[1], leading, others[0])
        return
    for column in zip(*rows, strict=True):
        total = column[0]
        if leading != 1:
            total.mul_(leading)
        for place in terms:
            total.add_(column[place], alpha=weights[place])


def _mix_two(row: Sequence[Tensor], other: Sequence[Tensor], own: float, others: float) -> None:
    """Form the mixture of two in the first of them: one pass, where mul_ and add_ are two.

    No weight is 0: addr_ takes 0 times infinity for 0, and trouble is to stay visible.
    """
    for total, vector in zip(row, other, strict=True):
        one = _ONE[total.dtype]
        total.view(-1, 1).addr_(vector, one, beta=own, alpha=others)
