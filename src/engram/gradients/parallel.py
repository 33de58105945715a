"""Ranks that take the same step: rows averaged over a process group, once all are found to fit.

Every rank makes the same collective calls in the same order, whatever happens to it: an error of
one rank travels in the first call of a step, and is then raised on all of them.
"""

from __future__ import annotations

import json
import re
import weakref
import zlib
from collections.abc import Hashable, Iterable, Iterator, MutableMapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from engram.errors import EngramError, shown
from engram.gradients.gram import Gradient
from engram.gradients.sharded import (
    Shards,
    described_parts,
    is_dtensor,
    own_part,
    part_of,
    shards_of,
)
from engram.rules import Current, Rule

GroupChoice: TypeAlias = "dist.ProcessGroup | Literal[False] | None"
"""A group of ranks; None for the default one, if there is one; False for none."""

Names: TypeAlias = list[Hashable]

_AVAILABLE = dist.is_available()
# Elements that travel together: few messages, and no copy of a large model's whole gradient.
_BUCKET = 2**23
_PIECE = 2**22  # elements whose bits are summed at a time
_INTERVAL = 100  # steps, after which weights that were found to be the same are compared again
# That ranks compare: the names of the rows, the parameters, which row reaches which, and the rule.
_FACTS = 4
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}

# Errors that have been raised on all ranks, and are not to be sent again.
_on_all_ranks: weakref.WeakSet[EngramError] = weakref.WeakSet()
# By parameter, the name of the group that has found it to be the same on all of its ranks.
_found_equal: MutableMapping[Tensor, str] = WeakTensorKeyDictionary()
# By the first parameter of a step, how many steps were taken since all were compared.
_steps: MutableMapping[Tensor, int] = WeakTensorKeyDictionary()


def check_group(process_group: object) -> None:
    """Refuse what is neither a process group that this rank is in, nor None, nor False."""
    if process_group is None or process_group is False:
        return
    if not _AVAILABLE or not isinstance(process_group, dist.ProcessGroup):
        raise EngramError(
            "process_group must be a group of torch.distributed that this rank is in, None for "
            f"the default one, or False to train alone, not {shown(process_group)}."
        )


def ranks_of(process_group: GroupChoice, rule: Rule) -> Ranks | None:
    """Return the ranks that take the next step together; None where one takes it alone.

    The default group is looked up here, at each step: it may be made after a mixer is.
    """
    if process_group is False or not _AVAILABLE or not dist.is_initialized():
        return None
    group = dist.group.WORLD if process_group is None else process_group
    if group is None or dist.get_world_size(group) == 1:
        return None
    return Ranks(group, rule)


def raise_on_all(ranks: Ranks | None, error: Exception) -> None:
    """Raise on every rank the error of one of them in its own part of a step.

    Returns, for the error to be raised as it is, where there is one rank, and on the rank of an
    error that is not ours. What interrupts a rank (Ctrl-C) is not sent: it comes to each of them,
    and not always in the middle of a step.
    """
    if ranks is not None and error not in _on_all_ranks:
        ranks.fail(error)


def shards_for(parameters: Sequence[Tensor], ranks: Ranks | None) -> Shards | None:
    """Return how the parameters are sharded over the ranks; None where every one is whole."""
    return shards_of(parameters, None if ranks is None else ranks.group)


def rank_share(examples: float, *, process_group: GroupChoice = None) -> float:
    """Return by what to multiply a loss so that ranks count by their examples, not one as another.

    Gradients and values are averaged over ranks. Where these have batches of different sizes, the
    mean over all examples is that of each rank's mean loss times its share, which is 1 where sizes
    are equal; a rank without any has a share of 0, and takes part with whatever loss it has. A
    `Learner` does so by itself. All ranks of the group must call it.

    Args:
        examples: how many this rank's loss is the mean of.
        process_group: as for a `GradientMixer`.

    >>> rank_share(10)  # alone
    1.0
    """
    check_group(process_group)
    ranks = ranks_of(process_group, Current())
    return 1.0 if ranks is None else ranks.share_of(examples)


def compare_again(parameters: Sequence[Tensor]) -> None:
    """Have the weights of all ranks compared in the next step, as in the first one."""
    for parameter in parameters:
        _found_equal.pop(parameter, None)


class PlannedRow(NamedTuple):
    """A row that a rank is to differentiate: of how many examples, in how many parts."""

    name: Hashable
    examples: float
    parts: int


class SharedRow(NamedTuple):
    """A row that all ranks are to differentiate, each times its own share, in so many parts."""

    name: Hashable
    share: float
    parts: int


class Ranks:
    """The ranks of a process group, in one step that they take together."""

    def __init__(self, group: dist.ProcessGroup, rule: Rule) -> None:
        self.group = group
        self._rule = rule
        self._size = dist.get_world_size(group)
        self.place = dist.get_rank(group), self._size
        """This rank's number, and how many there are."""
        self._device = _device_of(group)

    def fail(self, error: Exception) -> None:
        """Take part in the first collective call of a step that this rank cannot take."""
        self._largest([1] + [0] * (2 + 2 * _FACTS))
        self._raise_first_error(error)

    def average_rows(
        self,
        names: Names,
        values: Sequence[Tensor],
        rows: Sequence[Gradient],
        parameters: Sequence[Tensor],
        held: Sequence[Tensor],
        *,
        absent: bool,
        counts: Sequence[float] | None = None,
    ) -> tuple[Names, list[Tensor], list[Gradient]]:
        """Return names, values and gradients of the rows, averaged over the ranks.

        A parameter that a row reaches on some ranks only counts as zero on the others. Gradients
        that are DTensors are the mean over the ranks already.

        Args:
            names: of this rank's rows.
            values: what the rule compares, one a row.
            rows: the gradients over ``parameters``, which are averaged in place.
            parameters: those that are trained.
            held: those that must be the same on all ranks, the frozen ones of them too.
            absent: whether a rank may lack a row, which is then the mean of the others; else it is
                an error, and the same one on all ranks.
            counts: for each row, of how many examples it is the mean on this rank; without them
                every rank that has the row counts the same.
        """
        reached = [[gradient is not None for gradient in row] for row in rows]
        same_rows, same_reach, wide = self._agree(names, held, reached, values, counts)
        shares = self._align(names, counts, same_rows, absent)
        own = dict(zip(names, rows, strict=True))
        missing: Gradient = [None] * len(parameters)
        aligned = [own.get(name, missing) for name in shares]
        if not (same_rows and same_reach):
            aligned = self._fill(aligned, parameters)
        for row, share in zip(aligned, shares.values(), strict=True):
            if share != 1:
                for each in row:
                    if each is not None:
                        each.mul_(share)
        means = _shared_values(dict(zip(names, values, strict=True)), shares, wide)
        own_rows = [each for row in aligned for each in row if each is not None]
        self._average_together([*means, *(each for each in own_rows if not is_dtensor(each))])
        return [*shares], [value for mean in means for value in mean.unbind()], aligned

    def average_values(
        self,
        names: Names,
        values: Sequence[Tensor],
        held: Sequence[Tensor],
        *,
        absent: bool,
        counts: Sequence[float] | None = None,
    ) -> tuple[dict[Hashable, float], list[Tensor]]:
        """Return the rows' values, averaged as by `average_rows`, and the share of each row.

        A rank's gradient of a row, times its share, has the row's gradient as its mean over ranks.
        """
        same_rows, _, wide = self._agree(names, held, [], values, counts)
        shares = self._align(names, counts, same_rows, absent)
        means = _shared_values(dict(zip(names, values, strict=True)), shares, wide)
        self._average_together(means)
        return shares, [value for mean in means for value in mean.unbind()]

    def average_gradient(
        self, gradient: Gradient, parameters: Sequence[Tensor], held: Sequence[Tensor]
    ) -> Gradient:
        """Return the mean of one gradient over the ranks, as `average_rows` does."""
        _, same_reach, _ = self._agree([], held, [[each is not None for each in gradient]], [])
        if not same_reach:
            (gradient,) = self._fill([gradient], parameters)
        self._average_together([each for each in gradient if each is not None])
        return gradient

    def plan_rows(self, rows: Sequence[PlannedRow]) -> list[SharedRow]:
        """Return what every rank is to differentiate, in one order: a small collective.

        For parameters whose passes are collective calls themselves, so that ranks which lack a row
        take part in it all the same. The current row comes last.
        """
        if self._largest([0] * (3 + 2 * _FACTS))[0]:  # the first call of a step
            self._raise_first_error()
        own: dict[Hashable, PlannedRow] = {row.name: row for row in rows}
        lines = [f"{row.examples!r} {row.parts} {row.name}" for row in rows]
        found: dict[Hashable, list[tuple[float, int]]] = {}
        for text in self._gather("\n".join(lines)):
            for line in text.splitlines():
                count, parts, named = line.split(" ", 2)
                found.setdefault(named, []).append((float(count), int(parts)))
        current = rows[-1].name
        shared = []
        first, *references = _ordered(found, current)
        for name in [*references, first]:
            total = sum(count for count, _ in found[name])
            share = own[name].examples * self._size / total if name in own else 0.0
            shared.append(SharedRow(name, share, max(parts for _, parts in found[name])))
        return shared

    def gather(
        self, columns: Sequence[Tensor], message: object
    ) -> tuple[list[list[Tensor]], list[object]]:
        """Return the columns of all ranks, rank after rank, and each one's message, in JSON.

        Lengths may differ; each rank broadcasts its own. An error of a rank that was before this is
        raised here on all of them.
        """
        if self._largest([0] * (3 + 2 * _FACTS))[0]:  # the first call of a step
            self._raise_first_error()
        kinds = [[str(each.dtype).removeprefix("torch."), [*each.shape]] for each in columns]
        every = [json.loads(text) for text in self._gather(json.dumps([kinds, message]))]
        found = [[[kind, shape[1:]] for kind, shape in own] for own, _ in every]
        for rank, own in enumerate(found):
            if own != found[0]:
                mismatch = EngramError(
                    "The batches of all ranks must have the same columns; rank 0 has one of "
                    f"{found[0]}, and rank {rank} one of {own}."
                )
                _on_all_ranks.add(mismatch)
                raise mismatch
        whole: list[list[Tensor]] = []
        for rank, (own_kinds, _) in enumerate(every):
            whole.append([])
            for place, (kind, shape) in enumerate(own_kinds):
                column = columns[place]
                if rank != dist.get_rank(self.group):
                    column = torch.empty(shape, dtype=getattr(torch, kind), device=column.device)
                whole[-1].append(self._broadcast(column.contiguous(), rank))
        return whole, [text for _, text in every]

    def _broadcast(self, tensor: Tensor, rank: int) -> Tensor:
        """Return a rank's tensor on all ranks, its bytes having travelled where the group's do."""
        if not tensor.numel():
            return tensor
        flat = tensor.detach().view(-1).view(torch.uint8)
        sent = flat if tensor.device.type in _backends(self.group) else flat.to(self._device)
        dist.broadcast(sent, dist.get_global_rank(self.group, rank), self.group)
        if sent is not flat:
            flat.copy_(sent)
        return tensor

    def share_of(self, examples: float) -> float:
        """Return how a mean over so many examples counts among those of the ranks: 1 if equally."""
        sent = torch.tensor([float(examples)], dtype=torch.float64, device=self._device)
        dist.all_reduce(sent, dist.ReduceOp.SUM, self.group)
        total = sent.item()
        if not total > 0:
            raise EngramError("No rank has an example; at least one of them must have some.")
        return examples * self._size / total

    def _agree(
        self,
        names: Names,
        held: Sequence[Tensor],
        reached: list[list[bool]],
        values: Sequence[Tensor],
        counts: Sequence[float] | None = None,
    ) -> tuple[bool, bool, bool]:
        """Return whether rows, and what they reach, are the same on all ranks; a small collective.

        And whether a value of any rank is of float64: they travel in one dtype. Raises, on all
        ranks, the error of one of them, and where they hold other parameters or have other rules.
        """
        described = [_describe(parameter) for parameter in held]
        facts = ((names, counts), described, reached, _named(self._rule))
        hashes = [zlib.crc32(repr(fact).encode()) for fact in facts]
        group = self.group.group_name
        new = any(_found_equal.get(parameter) != group for parameter in held)
        if values and held:  # once a step, and as often on every rank
            steps = _steps[held[0]] = _steps.get(held[0], 0) + 1
            new = new or steps >= _INTERVAL
        wide = any(value.dtype is torch.float64 for value in values)
        failed, any_new, any_wide, *extremes = self._largest(
            [0, int(new), int(wide), *hashes, *(-each for each in hashes)]
        )
        if failed:
            self._raise_first_error()
        pairs = zip(extremes[:_FACTS], extremes[_FACTS:], strict=True)
        same_rows, same_parameters, same_reach, same_rule = [high == -low for high, low in pairs]
        if not same_parameters:
            self._raise_different_parameters(described)
        if not same_rule:
            raise EngramError(
                "Every rank of the process group must weigh its rows by the same rule; "
                f"{self._on_each_rank(_named(self._rule))}."
            )
        if any_new:
            self._compare_weights(held, described)
        return same_rows, same_reach, bool(any_wide)

    def _largest(self, numbers: Sequence[int]) -> list[int]:
        """Return the largest of each number over the ranks."""
        sent = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        dist.all_reduce(sent, dist.ReduceOp.MAX, self.group)
        largest: list[int] = sent.tolist()
        return largest

    def _gather(self, text: str) -> list[str]:
        """Return the texts of all ranks, in their order; nothing is pickled."""
        own = torch.tensor([*text.encode()], dtype=torch.uint8, device=self._device)
        (longest,) = self._largest([len(own)])
        padded = own.new_zeros(longest + 1)
        padded[: len(own)] = own
        every = [torch.empty_like(padded) for _ in range(self._size)]
        dist.all_gather(every, padded, self.group)
        return [bytes(each.tolist()).rstrip(b"\0").decode() for each in every]

    def _on_each_rank(self, own: str) -> str:
        """Return, in words, what each rank has."""
        every = enumerate(self._gather(own))
        return ", ".join(f"rank {rank} has {text}" for rank, text in every)

    def _raise_first_error(self, error: Exception | None = None) -> None:
        """Raise on all ranks the first error of one of them; return on the rank of a foreign one.

        There it is raised as it is.
        """
        foreign = error is not None and not isinstance(error, EngramError)
        own = "" if error is None else str(error)
        messages = self._gather(f"{type(error).__name__}: {error}" if foreign else own)
        if foreign:
            return
        rank, message = next((rank, text) for rank, text in enumerate(messages) if text)
        refusal = EngramError(
            f"Rank {rank} of the process group cannot take this step, so no rank does: {message}"
        )
        _on_all_ranks.add(refusal)
        raise refusal from error

    def _raise_different_parameters(self, described: list[str]) -> None:
        every = [text.splitlines() for text in self._gather("\n".join(described))]
        first = every[0]
        rank, other = next((rank, each) for rank, each in enumerate(every) if each != first)
        if len(first) != len(other):
            found = f"there are {len(first)} parameters on rank 0 and {len(other)} on rank {rank}"
        else:
            pairs = zip(first, other, strict=True)
            place, (own, others) = next(
                (place, pair) for place, pair in enumerate(pairs) if pair[0] != pair[1]
            )
            found = f"parameter {place} is {own} on rank 0 and {others} on rank {rank}"
        raise EngramError(f"The parameters are not the same on all ranks: {found}.")

    def _compare_weights(self, held: Sequence[Tensor], described: Sequence[str]) -> None:
        """Refuse weights that are not the same on all ranks, and remember those that are."""
        sums = [0 if is_dtensor(parameter) else _checksum(parameter) for parameter in held]
        other = self._first_other_part(held)
        if other is not None:
            raise EngramError(
                "The parameters are not the same on all ranks: parts of parameter "
                f"{other}, {described[other]}, are held by several ranks and differ; give every "
                "rank that holds the same part the same weights."
            )
        extremes = self._largest([*sums, *(-each for each in sums)])
        for place, description in enumerate(described):
            if extremes[place] != -extremes[place + len(held)]:
                raise EngramError(
                    "The parameters are not the same on all ranks: the weights of parameter "
                    f"{place}, {description}, differ; give every rank those of one, as "
                    "DistributedDataParallel does, and an optimiser with the same settings, or "
                    "train alone with process_group=False."
                )
        for parameter in held:
            _found_equal[parameter] = self.group.group_name
        if held:
            _steps[held[0]] = 0

    def _first_other_part(self, held: Sequence[Tensor]) -> int | None:
        """Return the place of the first DTensor whose replicas differ; None if there is none."""
        places = [place for place, parameter in enumerate(held) if is_dtensor(parameter)]
        if not places:
            return None
        own = torch.tensor(
            [
                [zlib.crc32(repr(part_of(held[place])).encode()), _checksum(own_part(held[place]))]
                for place in places
            ],
            dtype=torch.int64,
            device=self._device,
        )
        every = [torch.empty_like(own) for _ in range(self._size)]
        dist.all_gather(every, own, self.group)
        ranks = [each.tolist() for each in every]
        for column, place in enumerate(places):
            sums: dict[int, int] = {}
            for rank in ranks:
                part, checksum = rank[column]
                if sums.setdefault(part, checksum) != checksum:
                    return place
        return None

    def _align(
        self, names: Names, counts: Sequence[float] | None, same: bool, absent: bool
    ) -> dict[Hashable, float]:
        """Return the rows that there are on any rank, in one order, and by what each is multiplied.

        It is this rank's part of all examples of the row, times the number of ranks: then the mean
        over the ranks is that over the examples. Of rows that this rank lacks it is 0.
        """
        if same:
            return dict.fromkeys(names, 1.0)
        if not absent:
            raise EngramError(
                "Every rank of the process group must give the same rows, in one order; "
                f"{self._on_each_rank(str(names))}."
            )
        own = dict(zip(names, counts or [1.0] * len(names), strict=True))
        totals: dict[Hashable, float] = {}
        for text in self._gather("\n".join(f"{count!r} {name}" for name, count in own.items())):
            for line in text.splitlines():
                count, _, name = line.partition(" ")
                totals[name] = totals.get(name, 0.0) + float(count)
        order = _ordered(totals, names[0])
        return {name: own.get(name, 0.0) * self._size / totals[name] for name in order}

    def _fill(self, rows: Sequence[Gradient], parameters: Sequence[Tensor]) -> list[Gradient]:
        """Return the rows with zeros for what they reach on other ranks only."""
        reached = self._largest([each is not None for row in rows for each in row])
        anywhere = iter(reached)
        return [
            [
                torch.zeros_like(parameter) if next(anywhere) and gradient is None else gradient
                for gradient, parameter in zip(row, parameters, strict=True)
            ]
            for row in rows
        ]

    def _average_together(self, tensors: Sequence[Tensor]) -> None:
        for bucket in _buckets(tensors):
            self._average(bucket)

    def _average(self, tensors: Sequence[Tensor]) -> None:
        # Divided first: a sum of half-precision gradients may overflow where their mean does not.
        flat = torch.cat([tensor.flatten() for tensor in tensors]).div_(self._size)
        dist.all_reduce(flat, dist.ReduceOp.SUM, self.group)
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()


def _shared_values(
    own: dict[Hashable, Tensor], shares: dict[Hashable, float], wide: bool
) -> list[Tensor]:
    """Return this rank's part of the rows' values, as one tensor; of no rows there is none."""
    if not shares:
        return []
    if wide:
        own = {name: value.double() for name, value in own.items()}
    zero = torch.zeros_like(next(iter(own.values())))
    return [torch.stack([own.get(name, zero) * share for name, share in shares.items()])]


def _device_of(group: dist.ProcessGroup) -> torch.device:
    """Return where a group's small messages travel: on the host if it can, where nothing waits."""
    kinds = _backends(group)
    if "cpu" in kinds:
        return torch.device("cpu")
    return torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())


def _backends(group: dist.ProcessGroup) -> list[str]:
    """Return the kinds of device whose tensors a group sends."""
    return [each.partition(":")[0] for each in dist.get_backend_config(group).split(",")]


def _named(rule: Rule) -> str:
    """Return what a rule says of itself, without the places of objects, which no ranks share."""
    return re.sub(" at 0x[0-9a-f]+", "", str(rule))


def _describe(parameter: Tensor) -> str:
    state = "trained" if parameter.requires_grad else "frozen"
    device = f"({parameter.device.type}, {state})"
    return f"{list(parameter.shape)} {parameter.dtype} {device}{described_parts(parameter)}"


def _ordered(names: Iterable[Hashable], current: Hashable) -> Names:
    """Return names of rows in the order of all ranks: the current one, tasks by their numbers."""
    return sorted(names, key=lambda name: (name != current, len(str(name)), str(name)))


def _checksum(parameter: Tensor) -> int:
    """Return a sum over the bits of a parameter that tells any one of them, and their order.

    Integers add up to the same in whatever order a device takes them.
    """
    flat = parameter.detach().reshape(-1)
    bits = flat.view(_BITS[flat.element_size()])
    total = 0
    for start in range(0, len(bits), _PIECE):
        piece = bits[start : start + _PIECE].to(torch.int64)
        odd = torch.arange(start, start + len(piece), device=piece.device).mul_(2).add_(1)
        total += int((piece * odd).sum())
    return total % 2**62


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group the tensors of a kind, up to the size of a bucket (a larger tensor travels alone)."""
    buckets: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        kind = tensor.dtype, tensor.device
        bucket = buckets.setdefault(kind, [])
        if bucket and sum(t.numel() for t in bucket) + tensor.numel() > _BUCKET:
            yield buckets.pop(kind)
            bucket = buckets.setdefault(kind, [])
        bucket.append(tensor)
    yield from buckets.values()
