"""What stays when a memory is given another policy: the choice alone, group by group.

`choose` is a pure function of the groups as they are, the policy that is to come, and a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engram.memory.groups import Key
from engram.memory.policies import Policy


class Kept(NamedTuple):
    """A group of a policy: how many came to it, what its limit is, and who is in it, in order."""

    key: Key
    limit: int
    seen: int
    slots: list[int]


def choose(
    groups: Sequence[Kept],
    before: Policy,
    after: Policy,
    limits: tuple[int, int],
    key_of: Callable[[int], Key],
    arrival: Callable[[int], Any],
    generator: np.random.Generator,
) -> list[Kept]:
    """Return the groups of a policy, made of the members of those of another one.

    ``limits`` are those of a group before and after.

    - Groups stay what they are where both policies have the same ones; a pool is divided by class,
      and the groups of classes become one pool, otherwise. Of a pool that is divided each class is
      taken to have had its share of all that came.
    - **The newest stay** with `ClassRing` and `Fifo`, in the order in which they came: that of the
      group where it is one that keeps an order, else by task, time and number.
    - **A uniform sample stays** with `ClassSample` and `Reservoir`: of each group, or of all that
      came to several uniform groups, a group being drawn from as often as so many came to it. Where
      that asks for more than a group holds, the others make up for it, and where groups of the
      newest become uniform, the sample is of what they hold.
    - **Places that are added are filled by whatever comes next**, as those of erased examples are.
    """
    if before.by_class == after.by_class:
        merged = [(group.key, [group]) for group in groups]
    elif after.by_class:
        merged = _divided(groups, key_of)
    else:
        merged = [(key_of(0), list(groups))] if groups else []
    previous, limit = limits
    kept = []
    for key, parts in merged:
        seen = sum(part.seen for part in parts)
        together = [slot for part in parts for slot in part.slots]
        if not after.uniform:
            if before.uniform or len(parts) > 1:
                rank = {
                    slot: i - len(part.slots) for part in parts for i, slot in enumerate(part.slots)
                }
                together.sort(key=lambda slot, rank=rank: (*arrival(slot), rank[slot]))  # type: ignore[misc]
            together = together[max(0, len(together) - limit) :]
        elif len(together) > limit:
            together = _sample(parts, limit, before.uniform, generator)
        own = limit
        if previous == limit and before.uniform == after.uniform and len(parts) == 1:
            own = min(parts[0].limit or limit, limit)  # it may have been lowered by an eviction
        kept.append(Kept(key, max(own, len(together)), max(seen, len(together)), together))
    return kept


def _divided(groups: Sequence[Kept], key_of: Callable[[int], Key]) -> list[tuple[Key, list[Kept]]]:
    """Return a pool's members by class, each with its share of all that came."""
    found: dict[Key, list[int]] = {}
    for group in groups:
        for slot in group.slots:
            found.setdefault(key_of(slot), []).append(slot)
    total = sum(len(group.slots) for group in groups)
    came = sum(group.seen for group in groups)
    return [
        (key, [Kept(key, 0, max(len(slots), round(came * len(slots) / total)), slots)])
        for key, slots in found.items()
    ]


def _sample(
    parts: Sequence[Kept], count: int, uniform: bool, generator: np.random.Generator
) -> list[int]:
    """Return a sample of the members of groups, in the groups' order."""
    together = [slot for part in parts for slot in part.slots]
    wanted = [count] if len(parts) == 1 else [0] * len(parts)
    if uniform and len(parts) > 1:
        came = [part.seen for part in parts]
        wanted = generator.multivariate_hypergeometric(came, count, method="marginals").tolist()
    chosen: set[int] = set()
    for part, share in zip(parts, wanted, strict=True):
        share = min(share, len(part.slots))
        chosen |= set(generator.choice(part.slots, share, replace=False).tolist())
    rest = [slot for slot in together if slot not in chosen]
    if rest:
        chosen |= set(generator.choice(rest, count - len(chosen), replace=False).tolist())
    return [slot for slot in together if slot in chosen]
