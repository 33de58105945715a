"""The matrix of a step, with a row for each loss: its Gram matrix, and its product with weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError

Gradient: TypeAlias = Sequence[Tensor | None]  # one entry a parameter; None is a gradient of 0

_FULL_PRECISION = (torch.float32, torch.float64)
_PIECE = 2**22  # elements of a half-precision gradient that are widened at a time


class Matrix:
    """Rows that exist as tensors, one a row and parameter, and are never put together.

    In a small model calls cost more than arithmetic, so the usual matrix takes the shortest way:
    every row reaches every parameter, in contiguous tensors of full precision on one device. On a
    CPU it goes parameter by parameter, while a parameter's gradients are in the cache, and in plain
    numbers.
    """

    def __init__(self, rows: Sequence[Gradient], device: torch.device) -> None:
        self._rows = rows
        self._device = device
        present = [[each for each in row if each is not None] for row in rows]
        self._dtype = _narrowest(present)
        complete = all(len(full) == len(row) for full, row in zip(present, rows, strict=True))
        self._usual = present if complete and _are_plain(present, device) else None
        if self._usual is None:
            _check_dense(present)

    def gram(self) -> Tensor:
        """Return the dot products of the rows, ``[n, n]``, summed in float32 or better."""
        if self._usual and self._device.type == "cpu":
            return self._gram_in_numbers(self._usual)
        size = len(self._rows)
        products: dict[tuple[int, int], list[Tensor]] = {}
        vectors = self._usual and [[each.flatten() for each in row] for row in self._usual]
        for i in range(size):
            for j in range(i, size):
                if vectors is not None:
                    dots = [*map(torch.dot, vectors[i], vectors[j])]
                else:
                    dots = [*map(self._dot, self._rows[i], self._rows[j])]
                products[i, j] = products[j, i] = dots
        flat = [dot for i in range(size) for j in range(size) for dot in products[i, j]]
        if not flat:  # nothing is trained
            return torch.zeros(size, size, device=self._device)
        gram = torch.stack(flat).view(size, size, -1).sum(-1)
        return gram.to(self._dtype)

    def mixture(self, weights: Tensor) -> Gradient:
        """Return ``weights @ rows``, formed in the buffers of the first row that has some."""
        if self._usual and self._device.type == "cpu":
            numbers = weights.tolist()
            columns = zip(*self._usual, strict=True)
            return [_mixture_in_numbers(column, numbers) for column in columns]
        scalars = weights.unbind()
        if self._usual is None:
            return [_mixture(column, scalars) for column in zip(*self._rows, strict=True)]
        mixed = []
        for first, *others in zip(*self._usual, strict=True):
            mixed.append(first.mul_(scalars[0]))
            for gradient, weight in zip(others, scalars[1:], strict=True):
                first.addcmul_(gradient, weight)
        return mixed

    def _gram_in_numbers(self, rows: list[list[Tensor]]) -> Tensor:
        size = len(rows)
        pairs = [(i, j) for i in range(size) for j in range(i, size)]
        sums = dict.fromkeys(pairs, 0.0)
        for column in zip(*rows, strict=True):
            vectors = [gradient.view(-1) for gradient in column]
            for i, j in pairs:
                sums[i, j] += torch.dot(vectors[i], vectors[j]).item()
        gram = [[sums[min(i, j), max(i, j)] for j in range(size)] for i in range(size)]
        return torch.tensor(gram, dtype=self._dtype)

    def _dot(self, left: Tensor | None, right: Tensor | None) -> Tensor:
        if left is None or right is None:
            return torch.zeros((), device=self._device)
        left, right = left.flatten(), right.flatten()
        if left.dtype in _FULL_PRECISION:
            return torch.dot(left, right).to(self._device)
        pieces = [slice(start, start + _PIECE) for start in range(0, len(left) or 1, _PIECE)]
        dots = [torch.dot(left[piece].float(), right[piece].float()) for piece in pieces]
        return torch.stack(dots).sum().to(self._device)


def _mixture_in_numbers(gradients: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    total = gradients[0]
    if weights[0] != 1:
        total.mul_(weights[0])
    for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
        if weight != 0:
            total.add_(gradient, alpha=weight)
    return total


def _mixture(gradients: Gradient, weights: Sequence[Tensor]) -> Tensor | None:
    terms = [(g, w.to(g.device)) for g, w in zip(gradients, weights, strict=True) if g is not None]
    if not terms:
        return None
    first, weight = terms[0]
    narrow = first.dtype not in _FULL_PRECISION
    total = (first.float() if narrow else first).mul_(weight)
    for gradient, weight in terms[1:]:
        total.addcmul_(gradient, weight)
    return first.copy_(total) if narrow else total


def _narrowest(rows: list[list[Tensor]]) -> torch.dtype:
    """Return the dtype that says how far the dot products can be trusted."""
    wide = all(each.dtype == torch.float64 for row in rows for each in row)
    return torch.float64 if wide and any(rows) else torch.float32


def _are_plain(rows: list[list[Tensor]], device: torch.device) -> bool:
    return all(
        each.dtype in _FULL_PRECISION
        and each.layout is torch.strided
        and each.is_contiguous()
        and each.device == device
        for row in rows
        for each in row
    )


def _check_dense(rows: list[list[Tensor]]) -> None:
    for row in rows:
        for each in row:
            if each.layout is not torch.strided or each.is_complex():
                raise EngramError(
                    f"Gradients must be dense and real, and one of shape {list(each.shape)} is "
                    f"{each.layout} of {each.dtype}; an embedding needs sparse=False."
                )
