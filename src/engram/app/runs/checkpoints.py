"""Where units are saved on their way: a folder beside the store, or one that all machines share.

What a checkpoint holds, and as which bytes, is the business of `engram.lab.protocol.Checkpoint`.

In a shared folder every attempt at a unit has a file of its own, so that no two workers ever write
the same one: a worker that was thought dead, and is not, writes a file that nobody reads any more.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
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
    """The checkpoints of all units of a store, which are saved every so many seconds.

    They lie in a folder ``shared`` with other machines, if one is given.
    """

    store: Store
    every: float
    shared: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder beside the store, or the store's own in the shared one."""
        if self.shared is None:
            return self.store.path.with_name(f"{self.store.path.stem}-checkpoints")
        return self.shared / f"{store_name(self.store.path)}-checkpoints"

    def path(self, unit: Unit, device: str) -> Path:
        """Return where a unit is saved: the same command has the same, until results are stored.

        The file's name is the unit's address and how many results of its runs the store has. In a
        shared folder the attempts at it lie in a folder of that name, less the ending.
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

    def saved(self, path: Path) -> bool:
        """Whether anything is saved of the unit of a path."""
        from engram.lab.protocol import Checkpoint

        return path.exists() if self.shared is None else bool(_attempts(path, Checkpoint))

    def parted(self, units: Sequence[Unit], device: str) -> list[Unit]:
        """Cut units where some of their runs were saved as a unit of their own."""
        if all(len(unit.runs) < 2 for unit in units):
            return [unit for unit in units if unit.runs]
        saved = [
            (path, [*map(address, held["identities"], held["seeds"])])
            for path, held in self._held()
        ]
        return [part for unit in units for part in self._parted(unit, device, saved)]

    def _parted(
        self, unit: Unit, device: str, saved: Sequence[tuple[Path, Sequence[str]]]
    ) -> Iterator[Unit]:
        if len(unit.runs) < 2 or not saved or self.saved(self.path(unit, device)):
            yield from [unit] if unit.runs else []
            return
        runs = [address(spec.identity(), seed) for spec, seed in unit.runs]
        for path, addresses in saved:
            start = runs.index(addresses[0]) if addresses and addresses[0] in runs else 0
            stop = start + len(addresses)
            part = unit.part(start, stop)
            if addresses and runs[start:stop] == addresses and self.path(part, device) == path:
                yield from self._parted(unit.part(0, start), device, saved)
                yield part
                yield from self._parted(unit.part(stop, len(runs)), device, saved)
                return
        yield unit

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
            for each in [path] if self.shared is None else _attempts(path, Checkpoint):
                Checkpoint(each).remove()
        if self.shared is not None:
            shutil.rmtree(_attempts_folder(path), ignore_errors=True)
        self._remove_empty_folder()

    def remove_stale(self) -> None:
        """Remove those whose results came into the store before they could be removed."""
        for path, held in self._held():
            had = int(path.stem.rpartition(".")[2])
            if self._results(held["identities"], held["seeds"]) > had:
                self.remove(path)
        self._remove_empty_folder()  # a killed process has left it

    def _held(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Yield the path of every unit that is saved, and which runs it has."""
        from engram.lab.protocol import Checkpoint

        if self.shared is None:
            paths = {path: [path] for path in Checkpoint.saved_in(self.folder)}
        else:
            folders = sorted(each for each in self.folder.glob("*.*") if each.is_dir())
            paths = {path: _attempts(path, Checkpoint) for path in map(_path_of, folders)}
        for path, attempts in paths.items():
            if not path.stem.rpartition(".")[2].isdecimal():
                continue  # somebody else's file
            held = next(filter(None, map(Checkpoint.peek, attempts)), None)
            if held is not None:
                yield path, held

    def _results(self, identities: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> int:
        """Return how many results the store has of these runs."""
        runs = zip(identities, seeds, strict=True)
        return sum(self.store.count(address(identity, seed)) for identity, seed in runs)

    def _remove_empty_folder(self) -> None:
        with suppress(OSError):  # it may hold what others have saved, or not be there
            self.folder.rmdir()


def claim(path: Path, kind: type[Checkpoint]) -> Path:
    """Return a file for a new attempt at the unit of a path, which nobody else writes.

    It begins as what the attempt before it has saved last, if there is anything. Nothing is asked
    of locks or clocks: another attempt may be alive, and go on writing a file of its own.
    """
    before = _attempts(path, kind)
    mine = _attempts_folder(path) / f"{uuid.uuid4().hex}.safetensors"
    mine.parent.mkdir(parents=True, exist_ok=True)
    for other in before:
        if kind.peek(other) is None:
            continue
        held = other if other.exists() else other.with_suffix(f".previous{other.suffix}")
        with suppress(OSError):  # it was removed meanwhile: its unit is done
            _link(held, mine)
            break
    return mine


def store_name(path: Path) -> str:
    """Return what a store is called where those of others may lie beside it."""
    digits = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    return f"{path.stem}-{digits}"


def _attempts_folder(path: Path) -> Path:
    return path.with_suffix("")


def _path_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.safetensors")


def _attempts(path: Path, kind: type[Checkpoint]) -> list[Path]:
    """Return the attempts at the unit of a path that have saved anything, the last one first."""

    def when(each: Path) -> float:
        with suppress(OSError):
            return each.stat().st_mtime
        return 0.0

    return sorted(kind.saved_in(_attempts_folder(path)), key=when, reverse=True)


def _link(source: Path, target: Path) -> None:
    """Let a file have a second name, or be a second file: a checkpoint is never changed in place.

    Whoever writes a checkpoint writes a new file and gives it the old one's name.
    """
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        part = target.with_name(f".{target.name}.partial")
        shutil.copy2(source, part)
        part.replace(target)
