"""The matrix of a step, with a row for each loss: its Gram matrix, and its product with weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients._numbers import as_tensor, dot_products, mix_into_first

Gradient: TypeAlias = Sequence[Tensor | None]  # one entry a parameter; None is a gradient of 0

_DOUBLE = {torch.float64}
_FULL_PRECISION = {torch.float32, torch.float64}
_PIECE = 2**22  # elements of a half-precision gradient that are widened at a time


class Matrix:
    """Rows that exist as tensors, one a row and parameter, and are never put together.

    In a small model calls cost more than arithmetic, so the usual matrix takes the shortest way:
    every row reaches every parameter, in contiguous tensors of full precision on one device; on a
    CPU, in plain numbers.
    """

    def __init__(self, rows: Sequence[Gradient], device: torch.device) -> None:
        self._rows = rows
        self._device = device
        dtypes = {each.dtype for row in rows for each in row if each is not None}
        self.dtype = torch.float64 if dtypes == _DOUBLE else torch.float32
        """How far the dot products can be trusted: the narrowest of the rows, float32 at least."""
        self._usual = _usual(rows, device) if dtypes <= _FULL_PRECISION else None
        if self._usual is None:
            _check_dense(rows)
        _check_buffers(rows)

    def gram(self) -> Tensor:
        """Return the dot products of the rows, ``[n, n]``, summed in float32 or better."""
        size = len(self._rows)
        products: dict[tuple[int, int], list[Tensor]] = {}
        for i in range(size):
            for j in range(i, size):
                if self._usual is not None:
                    dots = [*map(torch.dot, self._usual[i], self._usual[j])]
                else:
                    dots = [*map(self._dot, self._rows[i], self._rows[j])]
                products[i, j] = products[j, i] = dots
        flat = [dot for i in range(size) for j in range(size) for dot in products[i, j]]
        if not flat:  # nothing is trained
            return torch.zeros(size, size, device=self._device)
        gram = torch.stack(flat).view(size, size, -1).sum(-1)
        return gram.to(self.dtype)

    def gram_in_numbers(self) -> list[list[float]]:
        """Return `gram` in plain numbers, for a step whose losses are on the CPU."""
        if self._usual is not None:
            return dot_products(self._usual)
        numbers: list[list[float]] = self.gram().tolist()
        return numbers

    def mixture(self, weights: Tensor) -> Gradient:
        """Return ``weights @ rows``, formed in the buffers of the first row that has some."""
        scalars = weights.unbind()
        if self._usual is None:
            return [_mixture(column, scalars) for column in zip(*self._rows, strict=True)]
        for first, *others in zip(*self._usual, strict=True):
            first.mul_(scalars[0])
            for gradient, weight in zip(others, scalars[1:], strict=True):
                first.addcmul_(gradient, weight)
        return self._rows[0]

    def mixture_in_numbers(self, weights: list[float], dtype: torch.dtype) -> Gradient:
        """Return `mixture` for weights in plain numbers, which stand for some of this dtype."""
        if self._usual is None:
            return self.mixture(as_tensor(weights, dtype))
        mix_into_first(self._usual, weights)
        return self._rows[0]

    def _dot(self, left: Tensor | None, right: Tensor | None) -> Tensor:
        if left is None or right is None:
            return torch.zeros((), device=self._device)
        left, right = left.flatten(), right.flatten()
        if left.dtype in _FULL_PRECISION:
            return torch.dot(left, right).to(self._device)
        pieces = [slice(start, start + _PIECE) for start in range(0, len(left) or 1, _PIECE)]
        dots = [torch.dot(left[piece].float(), right[piece].float()) for piece in pieces]
        return torch.stack(dots).sum().to(self._device)


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


def _usual(rows: Sequence[Gradient], device: torch.device) -> list[list[Tensor]] | None:
    """Return rows of full precision, flat, if the shortest way is open to them."""
    flat: list[list[Tensor]] = []
    for row in rows:
        vectors = []
        for each in row:
            if (
                each is None
                or each.layout is not torch.strided
                or not each.is_contiguous()
                or each.device != device
            ):
                return None
            vectors.append(each if each.dim() == 1 else each.view(-1))
        flat.append(vectors)
    return flat


def check_rows(rows: Sequence[Gradient]) -> None:
    """Refuse rows that no matrix can be made of; each rank does so before it waits for others."""
    _check_dense(rows)
    _check_buffers(rows)


def _check_dense(rows: Sequence[Gradient]) -> None:
    for row in rows:
        for each in row:
            if each is not None and (each.layout is not torch.strided or each.is_complex()):
                raise EngramError(
                    f"Gradients must be dense and real, and one of shape {list(each.shape)} is "
                    f"{each.layout} of {each.dtype}; an embedding needs sparse=False."
                )


def _check_buffers(rows: Sequence[Gradient]) -> None:
    """Refuse gradients that a wrapper keeps in buffers of its own and has overwritten."""
    for column in zip(*rows, strict=True):
        buffers = [each.data_ptr() for each in column if each is not None]
        if len(buffers) > 1 and any(buffers):  # one parameter tells; an empty one is at 0
            if len(set(buffers)) < len(buffers):
                raise EngramError(
                    "Two rows share their memory, as with gradient_as_bucket_view=True of "
                    "DistributedDataParallel; compute the losses under its no_sync()."
                )
            return
