"""What a step makes of its rows: their dot products, and the way along their mixture."""

from __future__ import annotations

from itertools import combinations
from types import ModuleType

import torch
from torch import Tensor

from engram.engine._by_run import ByRun, absorbed
from engram.kernels import triton_works

_PAIR, _FEW_ROWS = 2, 3


def gram(rows: Tensor) -> Tensor:
    """Return the dot products [R, n, n] of rows [R, n, d]."""
    count = rows.shape[1]
    if kernels := _kernels_for(rows):
        matrix: Tensor = kernels.gram(rows)
        return matrix
    if not rows.is_cuda or count > _FEW_ROWS:
        return torch.bmm(rows, rows.transpose(1, 2))
    # A batched product this thin keeps a GPU waiting; multiplying and summing does not.
    squares = torch.linalg.vector_norm(rows, dim=-1).square_()
    entries = {(i, i): squares[:, i] for i in range(count)}
    for i, j in combinations(range(count), 2):
        entries[i, j] = entries[j, i] = (rows[:, i] * rows[:, j]).sum(-1)
    ordered = [entries[i, j] for i in range(count) for j in range(count)]
    return torch.stack(ordered, -1).view(-1, count, count)


def descend_along(parameters: Tensor, rows: Tensor, weights: Tensor, learning_rate: ByRun) -> None:
    """Take a step along the mixture, w <- w - rate * (weights @ rows), of parameters [R, d]."""
    weights, rate = absorbed(weights, learning_rate)
    if kernels := _kernels_for(rows, parameters):
        kernels.descend(parameters, rows, weights, rate)
    elif rows.is_cuda and rows.shape[1] <= _FEW_ROWS:
        for row, weight in zip(rows.unbind(1), weights.unbind(1), strict=True):
            parameters.addcmul_(row, weight.unsqueeze(-1), value=-rate)
    else:
        parameters.unsqueeze(1).baddbmm_(weights.unsqueeze(1), rows, alpha=-rate)


def _kernels_for(rows: Tensor, *others: Tensor) -> ModuleType | None:
    """Return the kernels that read the rows of a GPU once, where they can be had.

    Numbers of a row have to lie one behind the other, and those of the others too.
    """
    dense = all(tensor.stride(-1) == 1 for tensor in (rows, *others))
    if rows.shape[1] < _PAIR or not dense or not triton_works(rows):
        return None
    from engram.engine import _triton_many_rows, _triton_rows

    if rows.shape[1] == _PAIR:
        return _triton_rows
    return _triton_many_rows if rows.shape[1] <= _triton_many_rows.MOST_ROWS else None
