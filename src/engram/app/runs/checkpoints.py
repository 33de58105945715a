"""Where units are saved on their way: a folder beside the store.

What a checkpoint holds, and as which bytes, is the business of `engram.lab.protocol.Checkpoint`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.app.runs.rows import address, canonical
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.app.runs.executor import Unit
    from engram.app.runs.store import Store
    from engram.lab.protocol import Checkpoint


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of all units of a store, which are saved every so many seconds."""

    store: Store
    every: float

    @property
    def folder(self) -> Path:
        """The folder beside the store."""
        return self.store.path.with_name(f"{self.store.path.stem}-checkpoints")

    def path(self, unit: Unit, device: str) -> Path:
        """Return where a unit is saved: the same command has the same, until results are stored.

        The file's name is the unit's address and how many results of its runs the store has.
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
        return self.folder / f"{name}.{have}.safetensors"

    def begin(self, path: Path) -> Checkpoint:
        """Return the checkpoint of a unit that begins, or goes on, now."""
        from engram.lab.protocol import Checkpoint

        return Checkpoint(path, self.every)

    def parted(self, unit: Unit, device: str) -> list[Unit]:
        """Cut a unit where some of its runs were saved as a unit of their own."""
        from engram.lab.protocol import Checkpoint

        if len(unit.runs) < 2 or self.path(unit, device).exists():
            return [unit] if unit.runs else []
        runs = [address(spec.identity(), seed) for spec, seed in unit.runs]
        for path in Checkpoint.saved_in(self.folder):
            held = Checkpoint.peek(path)
            saved = [] if held is None else [*map(address, held["identities"], held["seeds"])]
            start = runs.index(saved[0]) if saved and saved[0] in runs else 0
            stop = start + len(saved)
            part = unit.part(start, stop)
            if saved and runs[start:stop] == saved and self.path(part, device) == path:
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

    def remove(self, path: Path) -> None:
        """Remove what is saved; what cannot be removed now is found stale the next time."""
        from engram.lab.protocol import Checkpoint

        with suppress(OSError):
            Checkpoint(path).remove()
        self._remove_empty_folder()

    def remove_stale(self) -> None:
        """Remove those whose results came into the store before they could be removed."""
        from engram.lab.protocol import Checkpoint

        for path in Checkpoint.saved_in(self.folder):
            had = path.stem.rpartition(".")[2]
            held = Checkpoint.peek(path) if had.isdecimal() else None
            if held is None:
                continue
            if self._results(held["identities"], held["seeds"]) > int(had):
                self.remove(path)
        self._remove_empty_folder()  # a killed process has left it

    def _results(self, identities: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> int:
        """Return how many results the store has of these runs."""
        runs = zip(identities, seeds, strict=True)
        return sum(self.store.count(address(identity, seed)) for identity, seed in runs)

    def _remove_empty_folder(self) -> None:
        with suppress(OSError):  # it may hold what others have saved, or not be there
            self.folder.rmdir()
