"""Where units are saved on their way: a folder beside the store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engram.errors import EngramError
from engram.runs._address import address, canonical
from engram.runs._checks import check_interval

if TYPE_CHECKING:
    from engram.protocol import Checkpoint
    from engram.runs._laboratory import Laboratory
    from engram.runs._store import Store
    from engram.runs._units import Unit


class Place(NamedTuple):
    """Where one unit is saved and how often, as a worker is told."""

    kind: type[Checkpoint]
    path: Path
    every: float  # seconds

    def remove(self) -> None:
        """Remove what is saved; what cannot be removed now is found stale the next time."""
        with suppress(OSError):
            self.kind(self.path).remove()
        _remove_if_empty(self.path.parent)


@dataclass(frozen=True)
class Checkpoints:
    """The places of all units of a store."""

    store: Store
    kind: type[Checkpoint]
    every: float

    @classmethod
    def beside(cls, store: Store, every: float, laboratory: Laboratory) -> Checkpoints | None:
        """Return where units are to be saved every so many seconds; None for 0, which is off."""
        check_interval(every)
        return cls(store, laboratory.Checkpoint, every) if every else None

    @property
    def folder(self) -> Path:
        """The folder beside the store."""
        return self.store.path.with_name(f"{self.store.path.stem}-checkpoints")

    def place(self, unit: Unit, device: str) -> Place:
        """Return the place of a unit: the same command has the same, until its results are stored.

        Its name is the unit's address and how many results of its runs the store has.
        """
        identities = [spec.identity() for spec in unit.specs]
        alike = all(identity == identities[0] for identity in identities)
        text = canonical(
            {
                "identity": identities[0] if alike else identities,
                "seeds": unit.seeds,
                "record_every": unit.record_every,
                "deterministic": unit.deterministic,
                "device": device.partition(":")[0],
            }
        )
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        have = self._results(identities, unit.seeds)
        return Place(self.kind, self.folder / f"{name}.{have}.safetensors", self.every)

    def parted(self, unit: Unit, device: str) -> list[Unit]:
        """Cut a unit where some of its runs were saved as a unit of their own."""
        if len(unit.runs) < 2 or self.place(unit, device).path.exists():
            return [unit] if unit.runs else []
        runs = [address(spec.identity(), seed) for spec, seed in unit.runs]
        for path in self.kind.saved_in(self.folder):
            held = self.kind.peek(path)
            saved = [] if held is None else [*map(address, held["identities"], held["seeds"])]
            start = runs.index(saved[0]) if saved and saved[0] in runs else 0
            stop = start + len(saved)
            part = unit.part(start, stop)
            if saved and runs[start:stop] == saved and self.place(part, device).path == path:
                before, after = unit.part(0, start), unit.part(stop, len(runs))
                return [*self.parted(before, device), part, *self.parted(after, device)]
        return [unit]

    def make_folder(self) -> None:
        """Make the folder, or say why there can be none, before any training time is spent."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EngramError(
                f"No checkpoint can be saved in {str(self.folder)!r}: {error}; checkpoint-every 0 "
                "does without."
            ) from error

    def remove_stale(self) -> None:
        """Remove those whose results came into the store before they could be removed."""
        for path in self.kind.saved_in(self.folder):
            had = path.stem.rpartition(".")[2]
            held = self.kind.peek(path) if had.isdecimal() else None
            if held is None:
                continue
            if self._results(held["identities"], held["seeds"]) > int(had):
                Place(self.kind, path, self.every).remove()
        _remove_if_empty(self.folder)  # a killed process has left it

    def _results(self, identities: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> int:
        """Return how many results the store has of these runs."""
        runs = zip(identities, seeds, strict=True)
        return sum(self.store.count(address(identity, seed)) for identity, seed in runs)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # it may hold what others have saved, or not be there
        folder.rmdir()
