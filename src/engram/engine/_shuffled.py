"""The subsets that `engram.plan` draws, for many runs at once on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from engram.engine.cuda_graphs import unchecked

_ROOM = 2**27  # numbers of the tables that are shuffled at once
_FEW = 2**15  # places that two bytes count


def shuffled(
    sources: Sequence[np.random.Generator], rows: int, count: int, size: int, device: torch.device
) -> Tensor:  # [R, rows, count]
    """Draw what `plan.subsets` draws from each source, for ``count`` below ``size``.

    The host draws the numbers, as there; the shuffling, which takes it ten times as long, is the
    device's.
    """
    left = torch.arange(size, size - count, -1, device=device)
    first = torch.arange(count, device=device)
    places = torch.empty(len(sources), rows, count, dtype=torch.int64, device=device)
    with ThreadPoolExecutor(len(sources)) as threads:
        drawn = threads.map(lambda source: source.random((rows, count)), sources)
        for mine, numbers in zip(places, drawn, strict=True):
            mine.copy_(torch.from_numpy(numbers).to(device).mul_(left)).add_(first)
    with unchecked():
        for part in torch.split(places.flatten(0, 1), _ROOM // size + 1):
            _shuffle(part, size)
    return places


def _shuffle(places: Tensor, size: int) -> None:
    """Put what a shuffle chooses, step by step, for the places that it exchanges, [rows, count]."""
    kind = torch.int16 if size <= _FEW else torch.int32
    table = torch.arange(size, dtype=kind, device=places.device).repeat(len(places), 1)
    for step in range(places.shape[1]):
        there, here = places[:, step, None], table[:, step, None].clone()
        chosen = table.gather(1, there)
        table.scatter_(1, there, here)  # a place in each row: there is no order to mind
        there.copy_(chosen)
