"""Parameters of which every rank holds a part: DTensors, as FSDP2 and tensor parallelism make them.

A row's gradients stay the DTensors that autograd, or FSDP2's hooks, leave in ``.grad``. What is
computed of them is computed on the local parts, in place, and the dot products are added up over
the ranks, each element once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engram.errors import EngramError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from engram.gradients.gram import Gradient

_PLAIN = {Tensor, nn.Parameter}
_PARTS = {"DTensor", "FlatParameter", "FullyShardedDataParallel"}
# Placements by name: of the second there are two classes, and torch moves them about.
_SPLIT = {"Shard", "_StridedShard"}
_REPLICATED = "Replicate"
_PARTIAL = {"Partial", "_MaskPartial", "MaskPartial", "_NormPartial"}
_WHERE = "torch.distributed.tensor"


def is_sharded(kind: type) -> bool:
    """Tell whether parameters or modules of this type are known to be parts of a whole."""
    return any(each.__name__ in _PARTS for each in kind.__mro__)


def is_dtensor(tensor: object) -> TypeGuard[DTensor]:
    """Tell whether a tensor is torch's DTensor, without importing what a while is needed for."""
    kind = type(tensor)
    return kind not in _PLAIN and kind.__name__ == "DTensor" and kind.__module__.startswith(_WHERE)


def has_parts(parameters: Iterable[Tensor]) -> bool:
    """Tell whether one of the parameters is a DTensor."""
    every = [*parameters]
    return not _PLAIN.issuperset(map(type, every)) and any(map(is_dtensor, every))


def refuse_sharded(parameters: Sequence[Tensor], what: str) -> None:
    """Refuse parameters of which a rank holds a part, for those that need each as a whole."""
    for each in parameters:
        if _is_flat(each) or (type(each) not in _PLAIN and is_sharded(type(each))):
            kind = "FlatParameter" if _is_flat(each) else type(each).__name__
            raise EngramError(
                f"A parameter is a {kind}: {what} is not supported with parameters that are "
                "sharded over ranks, as by FSDP or tensor parallelism; replicate the module, as "
                "DistributedDataParallel does."
            )


def own_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, in the same memory: the tensor itself of a plain one."""
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        local: Any = tensor.to_local()
    # What a collective call has not finished yet comes in a wrapper.
    waited: Tensor = local.wait() if hasattr(local, "wait") else local
    return waited


def own_parts(gradient: Gradient) -> list[Tensor | None]:
    """Return this rank's parts of a gradient."""
    return [None if each is None else own_part(each) for each in gradient]


def whole_number(tensor: Tensor) -> Tensor:
    """Return a loss as a plain tensor: one that is a DTensor is put together from its parts."""
    if not is_dtensor(tensor):
        return tensor
    whole: Tensor = tensor.full_tensor()
    return whole.detach()


def part_of(parameter: Tensor) -> tuple[int, ...]:
    """Return which part of a parameter this rank has: ranks with the same part are replicas."""
    if not is_dtensor(parameter):
        return ()
    place: Sequence[int] = parameter.device_mesh.get_coordinate() or ()
    pairs = zip(place, parameter.placements, strict=False)
    return tuple(at for at, placement in pairs if type(placement).__name__ in _SPLIT)


def described_parts(parameter: Tensor) -> str:
    """Return, in words, how a parameter is laid out over ranks; nothing for a plain one."""
    if not is_dtensor(parameter):
        return ""
    mesh = [*parameter.device_mesh.shape]
    return f", a DTensor {[*parameter.placements]} over a mesh of {mesh}"


class Shards:
    """How the parameters of a step are laid out over the ranks that take it.

    Args:
        parameters: those that are trained, some of them DTensors.
        group: the ranks that take the step; None for one rank alone.
    """

    def __init__(self, parameters: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
        self._parameters = parameters
        self._group = group
        size = 1 if group is None else dist.get_world_size(group)
        self.columns: dict[int, list[int]] = {}
        """By the number of ranks that hold the same part, the places of parameters."""
        for place, parameter in enumerate(parameters):
            copies = size // _split(parameter)
            self.columns.setdefault(copies, []).append(place)

    def aligned(self, rows: Sequence[Gradient]) -> list[Gradient]:
        """Return the rows with every gradient laid out as its parameter is.

        A gradient that is partial, a sum of which each rank has one term, is added up here.
        """
        return [
            [
                None if each is None else _aligned(each, parameter)
                for each, parameter in zip(row, self._parameters, strict=True)
            ]
            for row in rows
        ]

    def add_up(self, products: Tensor) -> Tensor:
        """Return the sum over the ranks of what each has of its parts."""
        if self._group is not None:
            dist.all_reduce(products, dist.ReduceOp.SUM, self._group)
        return products

    def anywhere(self, bad: Tensor) -> Tensor:
        """Return whether a truth holds on any rank."""
        if self._group is None:
            return bad
        found = bad.to(torch.int32)
        dist.all_reduce(found, dist.ReduceOp.MAX, self._group)
        return found.to(torch.bool)


def shards_of(parameters: Sequence[Tensor], group: dist.ProcessGroup | None) -> Shards | None:
    """Return how parameters are sharded, None where none is; refuse what cannot be mixed."""
    if _PLAIN.issuperset(map(type, parameters)) and not any(map(_is_flat, parameters)):
        return None
    sharded = False
    for each in parameters:
        if type(each) in _PLAIN and not _is_flat(each):
            continue
        if is_dtensor(each):
            sharded = True
        elif _is_flat(each) or is_sharded(type(each)):
            kind = "FlatParameter" if _is_flat(each) else type(each).__name__
            raise EngramError(
                f"A parameter is a {kind}, which holds parts of others: gradients that are sharded "
                "so are not supported; shard the module by torch.distributed.fsdp.fully_shard "
                "(FSDP2), or replicate it, as DistributedDataParallel does."
            )
    if not sharded:
        return None
    _check_layout(parameters, group)
    return Shards(parameters, group)


def whole_parameters(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the parameters, those of FSDP2 as the optimiser has them.

    Between a forward pass and the backward one FSDP2 may have put them together: what
    ``model.parameters()`` then gives are passing copies, which never get a gradient.
    """
    passing = {id(copy): own for own, copy in _fsdp_copies()}
    return [passing.get(id(each), each) for each in parameters] if passing else [*parameters]


def has_pending(parameters: Sequence[Tensor]) -> bool:
    """Tell whether FSDP2 holds gradients back that it has not averaged over its ranks."""
    if not has_parts(parameters):
        return False
    wanted = {id(each) for each in parameters if is_dtensor(each)}
    for group in _fsdp_groups():
        held = [each for each in group.fsdp_params if id(each.sharded_param) in wanted]
        if held and getattr(group, "_partial_reduce_output", None) is not None:
            return True
        for each in held:
            copy = getattr(each, "_unsharded_param", None)
            waiting = getattr(each, "unsharded_accumulated_grad", None)
            if waiting is not None or (copy is not None and copy.grad is not None):
                return True
    return False


def refuse_pending(parameters: Sequence[Tensor]) -> None:
    """Refuse to take a row's gradient from FSDP2 before it is whole."""
    if has_pending(parameters):
        raise EngramError(
            "FSDP2 holds back gradients of a row, as set_requires_gradient_sync(False) or "
            "set_requires_all_reduce(False) asks; set it to True for the last backward pass of "
            "every row, as each row has a gradient of its own."
        )


def _is_flat(parameter: Tensor) -> bool:
    """Tell whether FSDP1 has put parameters together in this one, whose type is any other's."""
    return getattr(parameter, "_is_flat_param", False)  # as isinstance() knows a FlatParameter


def _split(parameter: Tensor) -> int:
    """Return over how many ranks a parameter is split."""
    if not is_dtensor(parameter):
        return 1
    sizes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
    count = 1
    for size, placement in sizes:
        if type(placement).__name__ in _SPLIT:
            count *= size
    return count


def _aligned(gradient: Tensor, parameter: Tensor) -> Tensor:
    if not is_dtensor(gradient) or not is_dtensor(parameter):
        return gradient
    _check_placements(gradient, "gradient", {*_SPLIT, _REPLICATED, *_PARTIAL})
    if gradient.placements == parameter.placements:
        return gradient
    with torch.no_grad():
        return gradient.redistribute(parameter.device_mesh, parameter.placements)


def _check_placements(tensor: DTensor, what: str, known: set[str]) -> None:
    for placement in tensor.placements:
        if type(placement).__name__ not in known:
            raise EngramError(
                f"A {what} is a DTensor with the placement {placement}, of which it is not known "
                "how often each element counts; Shard and Replicate are."
            )


def _check_layout(parameters: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
    """Refuse layouts of which it is not known what their gradients are the mean of."""
    ranks = {dist.get_rank()} if group is None else {*dist.get_process_group_ranks(group)}
    largest = 0
    for each in parameters:
        if not is_dtensor(each):
            continue
        _check_placements(each, "parameter", {*_SPLIT, _REPLICATED})
        mesh = {*each.device_mesh.mesh.flatten().tolist()}
        if not mesh <= ranks:
            raise EngramError(
                f"A parameter is sharded over the ranks {sorted(mesh)}, and the step is taken by "
                f"{sorted(ranks)}: process_group must hold all of them, and cannot be False."
            )
        largest = max(largest, len(mesh))
    if largest < len(ranks):
        # Several replicas, of which nothing tells that their gradients have been averaged.
        raise EngramError(
            f"The parameters are sharded over {largest} ranks, and the step is taken by "
            f"{len(ranks)}: give process_group= the ranks of the mesh, or one mesh of all ranks "
            "to fully_shard, whose first dimension is the data parallel one."
        )


def _fsdp_groups() -> Iterator[Any]:
    """Return FSDP2's groups of parameters in this process.

    Nothing public leads from a parameter to what FSDP2 knows of it. Where torch has moved what is
    asked here, nothing is found.
    """
    if "torch.distributed.fsdp" not in sys.modules:
        return
    home = sys.modules.get("torch.distributed._composable_state")
    states = getattr(home, "_module_state_mapping", {})
    seen = set()
    for reference in [*states.values()]:
        state = reference()
        if state is None or id(state) in seen:
            continue
        seen.add(id(state))
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # torch 2.11 has one at most
            groups = [getattr(state, "_fsdp_param_group", None)]
        for group in groups:
            if hasattr(group, "fsdp_params"):
                yield group


def _fsdp_copies() -> Iterator[tuple[Tensor, Tensor]]:
    """Return FSDP2's parameters, each with the passing copy that is the whole of it."""
    for group in _fsdp_groups():
        for each in group.fsdp_params:
            copy = getattr(each, "_unsharded_param", None)
            if copy is not None:
                yield each.sharded_param, copy
