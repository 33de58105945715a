"""Rows of gradients as autograd leaves them: their Gram matrix and their mixture.

A row is the gradient of one loss, a tensor for each parameter. The rows are never put together in
one matrix: that would be a copy of each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.gradients.sharded import Shards

Gradient: TypeAlias = Sequence[Tensor | None]
"""One entry a parameter; None is a gradient of 0."""

_Vector = TypeVar("_Vector")
_Entry = TypeVar("_Entry")

_DOUBLE = {torch.float64}
_FULL_PRECISION = {torch.float32, torch.float64}
_PIECE = 2**22  # elements of a half-precision gradient that are widened at a time
_CODES = {torch.float32: "f", torch.float64: "d"}
_ONE = {dtype: torch.ones(1, dtype=dtype, device="cpu") for dtype in _CODES}


class GradientRows:
    """The rows of one step, with the dot products and the mixture that a rule asks for.

    Both come in tensors, for a device that nobody waits for, and in plain numbers, for a CPU: there
    a number costs a tenth of a tensor of one. In a small model calls cost more than arithmetic, and
    between two steps everything has left the processor's caches: what counts is how many different
    things are called, and how often. So rows that are *plain* have the shortest code: every row
    reaches every parameter, in contiguous tensors of full precision on one device.
    """

    def __init__(
        self, rows: Sequence[Gradient], device: torch.device, shards: Shards | None = None
    ) -> None:
        self._rows = rows
        self._device = device
        self._shards = shards  # of these rows are this rank's parts
        dtypes = {each.dtype for row in rows for each in row if each is not None}
        self.dtype = torch.float64 if dtypes == _DOUBLE else torch.float32
        """How far the dot products can be trusted: the narrowest of the rows, float32 at least."""
        self._plain = _plain(rows, device) if dtypes <= _FULL_PRECISION else None
        if self._plain is None:
            _check_dense(rows)
        _check_buffers(rows)

    def gram(self) -> Tensor:
        """Return the dot products of the rows, ``[n, n]``, summed in float32 or better."""
        if self._shards is not None:
            return self._gram_over_ranks(self._shards)
        size = len(self._rows)
        if self._plain is None:
            products = _dot_products(self._rows, self._dot)
        else:
            products = _dot_products(self._plain, torch.dot)
        flat = [each for row in _symmetric(products, size) for entry in row for each in entry]
        if not flat:  # nothing is trained
            return torch.zeros(size, size, device=self._device)
        return torch.stack(flat).view(size, size, -1).sum(-1).to(self.dtype)

    def gram_in_numbers(self) -> list[list[float]]:
        """Return `gram` in plain numbers, for a step whose losses are on the CPU."""
        if self._plain is None or self._shards is not None:
            numbers: list[list[float]] = self.gram().tolist()
            return numbers
        arrays = [[each.numpy() for each in row] for row in self._plain]
        # numpy's product is a number at once, where torch's is a tensor first; and vdot warns of
        # nothing, as dot does: beyond the range it is an infinity, and the rule says what follows.
        products = _dot_products(arrays, np.vdot)
        return _symmetric([sum(map(float, entry), 0.0) for entry in products], len(arrays))

    def _gram_over_ranks(self, shards: Shards) -> Tensor:
        """Return the dot products of the whole rows: those of all parts, each counted once."""
        total = torch.zeros(len(self._rows), len(self._rows), dtype=self.dtype, device=self._device)
        for copies, places in shards.columns.items():
            part = GradientRows([[row[at] for at in places] for row in self._rows], self._device)
            total += part.gram() / copies
        return shards.add_up(total)

    def mixture(self, weights: Tensor) -> Gradient:
        """Return ``weights @ rows``, formed in the buffers of the first row that has some."""
        scalars = weights.unbind()
        if self._plain is None:
            return [_mix_reached(column, scalars) for column in zip(*self._rows, strict=True)]
        for column in zip(*self._plain, strict=True):
            _mix_into_first(column, scalars)
        return self._rows[0]

    def mixture_in_numbers(self, weights: list[float], dtype: torch.dtype) -> Gradient:
        """Return `mixture` for weights in plain numbers, which stand for some of this dtype."""
        if self._plain is None:
            return self.mixture(as_tensor(weights, dtype))
        leading, *others = weights
        terms = [(place, weight) for place, weight in enumerate(others, 1) if weight != 0]
        if len(weights) == 2 and terms and leading not in (0, 1):
            # One pass, where mul_ and add_ are two. No weight is 0: addr_ takes 0 times infinity
            # for 0, and what is not finite is to stay visible.
            for total, vector in zip(*self._plain, strict=True):
                one = _ONE[total.dtype]
                total.view(-1, 1).addr_(vector, one, beta=leading, alpha=others[0])
            return self._rows[0]
        for column in zip(*self._plain, strict=True):
            if leading != 1:
                column[0].mul_(leading)
            for place, weight in terms:
                column[0].add_(column[place], alpha=weight)
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


def _dot_products(
    rows: Sequence[Sequence[_Vector]], dot: Callable[[_Vector, _Vector], _Entry]
) -> list[Sequence[_Entry]]:
    """Return the entries of the Gram matrix up to the diagonal: a dot product for each parameter.

    They are taken parameter by parameter, while its gradients are in the cache.
    """
    pairs = _pairs(len(rows))
    columns, count = zip(*rows, strict=True), len(pairs)
    products = [dot(column[i], column[j]) for column in columns for i, j in pairs]
    return [products[place::count] for place in range(count)]


def _symmetric(entries: Sequence[_Entry], size: int) -> list[list[_Entry]]:
    """Return the whole matrix, of its entries up to the diagonal."""
    return [[entries[place] for place in row] for row in _places(size)]


@cache
def _pairs(size: int) -> list[tuple[int, int]]:
    """Return the rows and columns of a matrix's entries up to its diagonal, row after row."""
    return [(i, j) for i in range(size) for j in range(i + 1)]


@cache
def _places(size: int) -> list[list[int]]:
    """Return, for every entry of a symmetric matrix, which of `_pairs` it is."""
    place = {pair: place for place, pair in enumerate(_pairs(size))}
    return [[place[max(i, j), min(i, j)] for j in range(size)] for i in range(size)]


def _mix_into_first(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Form the weighted sum of gradients in the first of them."""
    total = gradients[0].mul_(weights[0])
    for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
        total.addcmul_(gradient, weight)
    return total


def _mix_reached(column: Gradient, weights: Sequence[Tensor]) -> Tensor | None:
    """Form one parameter's mixture in the first gradient that there is; None if there is none."""
    pairs = zip(column, weights, strict=True)
    terms = [(each, weight.to(each.device)) for each, weight in pairs if each is not None]
    if not terms:
        return None
    gradients, scalars = [each for each, _ in terms], [weight for _, weight in terms]
    first = gradients[0]
    if first.dtype not in _FULL_PRECISION:
        gradients[0] = first.float()
    total = _mix_into_first(gradients, scalars)
    return total if total is first else first.copy_(total)


def _plain(rows: Sequence[Gradient], device: torch.device) -> list[list[Tensor]] | None:
    """Return rows of full precision as vectors, if they are plain."""
    plain: list[list[Tensor]] = []
    for row in rows:
        vectors = [
            each if each.dim() == 1 else each.view(-1)
            for each in row
            if each is not None
            and each.layout is torch.strided
            and each.is_contiguous()
            and each.device == device
        ]
        if len(vectors) < len(row):
            return None
        plain.append(vectors)
    return plain


def as_tensor(numbers: Iterable[float], dtype: torch.dtype) -> Tensor:
    """Return the numbers as a vector; ``torch.tensor`` looks at each of them, in twice the time."""
    return torch.frombuffer(array(_CODES[dtype], numbers), dtype=dtype)


def check_rows(rows: Sequence[Gradient]) -> None:
    """Refuse rows that cannot be mixed; each rank does so before it waits for others."""
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
