"""Rows averaged over the ranks of a process group, so that every rank takes the same step."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from engram.errors import EngramError
from engram.gradients._matrix import Gradient

# Elements that travel together: few messages, and no copy of a large model's whole gradient.
_BUCKET = 2**23


def average_rows(
    names: Sequence[Hashable],
    values: list[Tensor],
    rows: list[Gradient],
    parameters: Sequence[Tensor],
    group: dist.ProcessGroup,
) -> None:
    """Replace every row's value and gradient by the mean over the ranks, in place.

    A parameter that a row reaches on some ranks only counts as zero on the others. Ranks that
    hold different rows all raise the same error, before any of them waits for a row.
    """
    device = parameters[0].device if parameters else torch.device("cpu")
    reached = [[gradient is not None for gradient in row] for row in rows]
    shapes = [tuple(parameter.shape) for parameter in parameters]
    same_names, same_shapes, same_reach = _agree([names, shapes, reached], device, group)
    if not (same_names and same_shapes):
        own = f"{len(shapes)} trained parameters" if same_names else f"the rows {names}"
        raise EngramError(
            "mix() needs the same rows and parameters, in the same order, on every rank of the "
            f"process group, and rank {dist.get_rank(group)} has {own}, unlike others."
        )
    if not rows:
        return
    if not same_reach:
        reached = _anywhere(reached, device, group)
        rows[:] = [_with_zeros(*pair, parameters) for pair in zip(rows, reached, strict=True)]
    means = torch.stack(values)
    _average([means], group)
    values[:] = means.unbind()
    for bucket in _buckets([gradient for row in rows for gradient in row if gradient is not None]):
        _average(bucket, group)


def _agree(facts: Sequence[object], device: torch.device, group: dist.ProcessGroup) -> list[bool]:
    """Return of each fact whether it is the same on all ranks; one small collective."""
    marks = [zlib.crc32(repr(fact).encode()) for fact in facts]
    both = torch.tensor([marks, [-mark for mark in marks]], device=device)
    dist.all_reduce(both, dist.ReduceOp.MAX, group)
    largest, smallest_negated = both.tolist()
    return [high == -low for high, low in zip(largest, smallest_negated, strict=True)]


def _anywhere(
    reached: list[list[bool]], device: torch.device, group: dist.ProcessGroup
) -> list[list[bool]]:
    """Return of each row and parameter whether it is reached on any rank."""
    flags = torch.tensor(reached, dtype=torch.uint8, device=device)
    dist.all_reduce(flags, dist.ReduceOp.MAX, group)
    anywhere: list[list[bool]] = flags.bool().tolist()
    return anywhere


def _with_zeros(row: Gradient, reached: list[bool], parameters: Sequence[Tensor]) -> Gradient:
    return [
        torch.zeros_like(parameter) if anywhere and gradient is None else gradient
        for gradient, anywhere, parameter in zip(row, reached, parameters, strict=True)
    ]


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group the tensors by dtype, up to the size of a bucket (a larger tensor travels alone)."""
    open_buckets: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        bucket = open_buckets.setdefault(tensor.dtype, [])
        if bucket and sum(t.numel() for t in bucket) + tensor.numel() > _BUCKET:
            yield open_buckets.pop(tensor.dtype)
            bucket = open_buckets.setdefault(tensor.dtype, [])
        bucket.append(tensor)
    yield from open_buckets.values()


def _average(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    # Divided first: a sum of half-precision gradients may overflow where their mean does not.
    flat = torch.cat([tensor.flatten() for tensor in tensors]).div_(dist.get_world_size(group))
    dist.all_reduce(flat, dist.ReduceOp.SUM, group)
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
