"""Rows of gradients as autograd leaves them: their Gram matrix and their mixture.

A row is the gradient of one loss, a tensor for each parameter. The rows are never put together in
one matrix: that would be a copy of each. Where a call costs more than a copy they are, a bucket at
a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError
from engram.gradients.sharded import Shards
from engram.kernels import triton_works

Gradient: TypeAlias = Sequence[Tensor | None]
"""One entry a parameter; None is a gradient of 0."""

SHARED_BUFFERS = (
    "Two rows share their memory, as with gradient_as_bucket_view=True of DistributedDataParallel; "
    "compute the losses under its no_sync()."
)

_Vector = TypeVar("_Vector")
_Entry = TypeVar("_Entry")

_DOUBLE = {torch.float64}
_FULL_PRECISION = {torch.float32, torch.float64}
_PIECE = 2**22  # elements of a half-precision gradient that are widened at a time
# Elements of a row that are put together, at least and at most: on a GPU each call is a launch, or
# several, and on a CPU copies cost more than calls.
_BUCKET = 2**12, 2**22
_CACHED = 2**18  # elements, of all rows together, that a core of a CPU keeps at hand
_MOST_ROWS = 128  # of which a kernel forms all dot products
_CODES = {torch.float32: "f", torch.float64: "d"}
_ONE = {dtype: torch.ones(1, dtype=dtype, device="cpu") for dtype in _CODES}


class GradientRows:
    """The rows of one step, with the dot products and the mixture that a rule asks for.

    Both come in tensors, for a device that nobody waits for, and in plain numbers, for a CPU: there
    a number costs a tenth of a tensor of one. In a small model calls cost more than arithmetic, and
    between two steps everything has left the processor's caches: what counts is how many different
    things are called, and how often. So rows that are *plain* have the shortest code: every row
    reaches every parameter, in contiguous tensors of full precision, and all is on the CPU.

    On a GPU every call is a launch. Dot products are taken of many gradients that are put together,
    each in the order of its own memory, so that channels-last ones need no other copy: with Triton
    all of them by one kernel. And the mixture is formed by calls that go through all gradients at
    once, in their own buffers.
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
        self._plain: list[list[Tensor]] | None = None
        if device.type == "cpu" and dtypes <= _FULL_PRECISION:
            self._plain = _plain(rows, device)
        if self._plain is None:
            _check_dense(rows)
        _check_buffers(rows)

    def gram(self) -> Tensor:
        """Return the dot products of the rows, ``[n, n]``, summed in float32 or better."""
        if self._shards is not None:
            return self._gram_over_ranks(self._shards)
        size, dots = len(self._rows), list[list[Tensor]]()
        matrices: list[Tensor] = []
        for group in _groups(self._rows):
            for columns in _portions(group):
                matrix = _by_kernel(columns) if len(group.places) == size else None
                if matrix is None:
                    dots.append(self._products(group.places, _joined(columns)))
                else:
                    matrices.append(matrix.to(self._device))
        if dots:
            entries = _symmetric([*zip(*dots, strict=True)], size)
            flat = torch.stack([each for row in entries for entry in row for each in entry])
            matrix = flat.view(size, size, -1)
            matrices.append(matrix.sum(-1) if len(dots) > 1 else matrix.squeeze(-1))
        if not matrices:  # nothing is trained
            return torch.zeros(size, size, device=self._device)
        whole, *others = matrices
        if others:
            whole = whole + others[0] if len(others) == 1 else torch.stack(matrices).sum(0)
        return whole.to(self.dtype)

    def gram_in_numbers(self) -> list[list[float]]:
        """Return `gram` in plain numbers, for a step whose losses are on the CPU."""
        if self._plain is None or self._shards is not None:
            numbers: list[list[float]] = self.gram().tolist()
            return numbers
        arrays = [[each.numpy() for each in row] for row in self._plain]
        if max(map(len, arrays[0]), default=0) > _CACHED:
            arrays = [
                [piece for each in row for piece in _pieces(each, len(arrays))] for row in arrays
            ]
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
        """Return ``weights @ rows``, formed in the buffers of the first row that has some.

        What the other rows hold is lost.
        """
        scalars = weights.unbind()
        for group in _groups(self._rows):
            dtype = group.dtype if group.dtype in _FULL_PRECISION else torch.float32
            own = [scalars[place].to(group.device, dtype) for place in group.places]
            mix = _mix_together if dtype is group.dtype else _mix_widened
            mix(group, own)
        columns = zip(*self._rows, strict=True)
        return [next((each for each in column if each is not None), None) for column in columns]

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

    def _products(self, places: Sequence[int], vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return the entries up to the diagonal of what the rows at these places have."""
        own = dict(zip(places, vectors, strict=True))
        pairs = _pairs(len(self._rows))
        if len(own) == len(self._rows):
            return [self._dot(own[i], own[j]) for i, j in pairs]
        zero = torch.zeros((), device=self._device)
        return [self._dot(own[i], own[j]) if i in own and j in own else zero for i, j in pairs]

    def _dot(self, left: Tensor, right: Tensor) -> Tensor:
        if left.dtype in _FULL_PRECISION:
            return torch.dot(left, right).to(self._device)
        pieces = [slice(start, start + _PIECE) for start in range(0, len(left) or 1, _PIECE)]
        dots = [torch.dot(left[piece].float(), right[piece].float()) for piece in pieces]
        return torch.stack(dots).sum().to(self._device)


class _Group(NamedTuple):
    """Parameters that can be gone through at once, of which the same rows have gradients."""

    device: torch.device
    dtype: torch.dtype
    places: Sequence[int]
    """Of these rows."""
    rows: Sequence[list[Tensor]]
    """Their gradients: ``rows[k]`` are those of the row at ``places[k]``."""


def _groups(rows: Sequence[Gradient]) -> Iterator[_Group]:
    every = tuple(range(len(rows)))
    columns: dict[tuple[torch.device, torch.dtype, tuple[int, ...]], list[Sequence[Tensor]]] = {}
    for column in zip(*rows, strict=True):
        there = [each for each in column if each is not None]
        if not there:
            continue
        places = every
        if len(there) < len(column):
            places = tuple(place for place in every if column[place] is not None)
        columns.setdefault((there[0].device, there[0].dtype, places), []).append(there)
    for (device, dtype, places), there in columns.items():
        yield _Group(device, dtype, places, [[*row] for row in zip(*there, strict=True)])


def _portions(group: _Group) -> Iterator[list[Sequence[Tensor]]]:
    """Yield the gradients of the group's parameters, up to a bucket of them at a time."""
    least, most = _BUCKET
    # A small model has no activations in whose place its copies could be: half of it at a time.
    half = sum(each.numel() for each in group.rows[0]) // 2
    limit = max(least, min(most, half)) if _on_gpu(group.device) else least
    portion, filled = list[Sequence[Tensor]](), 0
    for column in zip(*group.rows, strict=True):
        size = column[0].numel()
        if portion and filled + size > limit:
            yield portion
            portion, filled = [], 0
        portion.append(column)
        filled += size
    yield portion


def _joined(columns: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the rows of some parameters as vectors; nothing is copied of a single one."""
    vectors = [_as_vectors(column) for column in columns]
    if len(vectors) == 1:
        return vectors[0]
    joined = [torch.cat(row) for row in zip(*vectors, strict=True)]
    return [each if each.dtype in _FULL_PRECISION else each.float() for each in joined]


def _on_gpu(device: torch.device) -> bool:
    """Tell whether a call costs more there than a copy."""
    return device.type != "cpu"


def _by_kernel(columns: Sequence[Sequence[Tensor]]) -> Tensor | None:
    """Return the dot products of the rows of some parameters, if there is a kernel for them.

    Of many parameters all rows are put together by one call; two rows of one stay where they are.
    """
    first, count = columns[0][0], len(columns[0])
    if not 2 <= count <= _MOST_ROWS or not first.numel() or not triton_works(first):
        return None
    from engram.kernels import rows as kernels

    vectors = [_as_vectors(column) for column in columns]
    if len(vectors) > 1:
        joined = torch.cat([each for row in zip(*vectors, strict=True) for each in row])
        return kernels.gram(joined.view(1, count, -1))[0]
    if count > 2:
        return None
    current, reference = (each.contiguous() for each in vectors[0])  # a vector may have holes
    return kernels.gram_apart(current, reference)


def _as_vectors(column: Sequence[Tensor]) -> list[Tensor]:
    """Return the rows' gradients of one parameter as vectors with the elements in one order.

    It is that of the first one's memory, so that it is not copied if it has no holes.
    """
    first = column[0]
    if first.dim() == 1:
        return [*column]
    if first.is_contiguous():
        return [each.view(-1) if each.is_contiguous() else each.reshape(-1) for each in column]
    order = sorted(range(first.dim()), key=first.stride, reverse=True)
    return [each.permute(order).reshape(-1) for each in column]


def _mix_together(group: _Group, weights: Sequence[Tensor]) -> None:
    """Form the weighted sums of gradients of full precision in the first row's."""
    total, *others = group.rows
    torch._foreach_mul_(total, weights[0])
    for row, weight in zip(others, weights[1:], strict=True):
        torch._foreach_mul_(row, weight)
        torch._foreach_add_(total, row)


def _mix_widened(group: _Group, weights: Sequence[Tensor]) -> None:
    """Do so in float32, and round to the first row's precision once."""
    for columns in _portions(group):
        firsts = [column[0] for column in columns]
        wide = [
            [torch.empty_like(each, dtype=torch.float32) for each in firsts] for _ in columns[0]
        ]
        for copies, row in zip(wide, zip(*columns, strict=True), strict=True):
            torch._foreach_copy_(copies, row)
        _mix_together(_Group(group.device, torch.float32, group.places, wide), weights)
        torch._foreach_copy_(firsts, wide[0])


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


def _pieces(vector: NDArray[Any], rows: int) -> Iterator[NDArray[Any]]:
    """Yield parts of a large vector that are in the cache for all products with the other rows'."""
    size = max(_CACHED // 8, _CACHED // rows)
    for start in range(0, len(vector) or 1, size):
        yield vector[start : start + size]


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
                raise EngramError(SHARED_BUFFERS)
            return
