"""What a policy that looks at the examples says of each that is held, and which one leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory.examples import Id
from engram.memory.journal import Journal
from engram.memory.policies import Selective
from engram.memory.slots import Candidate

Described = NDArray[np.float32]  # [B, k]


class Descriptions:
    """The description of every example held, by its id; changes are noted in the journal."""

    def __init__(self, policy: Selective, journal: Journal) -> None:
        self._policy, self._journal = policy, journal
        self._of: dict[Id, Described] = {}

    @property
    def length(self) -> int | None:
        """How many numbers describe an example; None while nothing is held."""
        return next((len(each) for each in self._of.values()), None)

    def entering(
        self, candidates: Iterable[Candidate], described: Described
    ) -> Iterator[Candidate]:
        """Yield the candidates of a batch; each one's description is known from then on."""
        for candidate in candidates:
            position, id = candidate[:2]
            if id in self._of:
                self._journal.append((self._of.__setitem__, id, self._of[id]))
            else:
                self._journal.append((self._of.pop, id, None))
            self._of[id] = described[position]
            yield candidate

    def leaving(self, ids: Sequence[Id], chance: float) -> int:
        """Return the place of the one that leaves, of members and, at the end, a candidate."""
        described = np.stack([self._of[id] for id in ids])
        place = self._policy.leaving(described, chance)
        if not isinstance(place, int | np.integer) or not 0 <= place < len(ids):
            raise EngramError(
                f"{type(self._policy).__name__}.leaving must return a place from 0 to "
                f"{len(ids) - 1}, not {shown(place)}."
            )
        return int(place)

    def keep(self, held: Mapping[Id, int]) -> None:
        """Forget all that is not held."""
        for id in [id for id in self._of if id not in held]:
            self._journal.append((self._of.__setitem__, id, self._of[id]))
            del self._of[id]

    def by_slot(self, ids: Sequence[Id]) -> Described:
        """Return the descriptions of these, [n, k]."""
        return np.stack([self._of[id] for id in ids]) if ids else np.zeros((0, 0), np.float32)

    def restore(self, ids: Sequence[Id], described: object) -> bool:
        """Take in what `by_slot` gave; return whether it can be that."""
        if not isinstance(described, np.ndarray) or described.dtype != np.float32:
            return False
        if described.ndim != 2 or len(described) != len(ids):
            return False
        self._of = dict(zip(ids, described, strict=True))
        return bool(np.isfinite(described).all())


def describe(policy: Selective, batch: Any, count: int) -> Described:  # noqa: ANN401 (nested)
    """Return what a policy says of a batch of so many examples, on the host."""
    found = policy.describe(batch)
    name = f"{type(policy).__name__}.describe"
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != count:
        given = list(found.shape) if isinstance(found, Tensor) else shown(found)
        raise EngramError(
            f"{name} must return a tensor [{count}, k] for {count} examples, not {given}."
        )
    described: Described = found.detach().to("cpu", torch.float32).numpy()
    if not np.isfinite(described).all():
        raise EngramError(f"{name} returned a value that is not finite.")
    return described
