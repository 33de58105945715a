"""The subsets that `engram.plan` draws, for many runs at once on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

_ROOM = 2**25  # numbers of the tables that are shuffled at once


def shuffled(
    sources: Sequence[np.random.Generator], rows: int, count: int, size: int, device: torch.device
) -> Tensor:  # [R, rows, count]
    """Draw what `plan.subsets` draws from each source, for ``count`` below ``size``.

    The host draws the numbers, as there; the shuffling, which takes it ten times as long, is the
    device's.
    """
    with ThreadPoolExecutor() as threads:
        drawn = threads.map(lambda source: source.random((rows, count)), sources)
        numbers = torch.stack([torch.from_numpy(each).to(device) for each in drawn])
    left = torch.arange(size, size - count, -1, device=device)
    places = numbers.mul_(left).long() + torch.arange(count, device=device)
    chosen = [_shuffle(part, size) for part in torch.split(places.flatten(0, 1), _ROOM // size + 1)]
    return torch.cat(chosen).view(places.shape)


def _shuffle(places: Tensor, size: int) -> Tensor:
    """Return what `count` steps of a shuffle choose, that exchange these places, [rows, count]."""
    table = torch.arange(size, dtype=torch.int32, device=places.device).repeat(len(places), 1)
    chosen = table.new_empty(places.shape)
    for place in range(places.shape[1]):
        there, here = places[:, place, None], table[:, place, None].clone()
        torch.gather(table, 1, there, out=chosen[:, place, None])
        table.scatter_(1, there, here)
    return chosen.long()
