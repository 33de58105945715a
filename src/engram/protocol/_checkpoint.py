"""Where a run is saved on its way, how often, and how it is found again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch

from engram.errors import EngramError, shown
from engram.protocol import _checkpoint_file as files
from engram.protocol._checkpoint_bytes import Contents
from engram.protocol._checkpoint_state import decode, encode


class Paused(Exception):  # noqa: N818 (nothing is wrong)
    """Raised by a run that was asked to pause; its checkpoint holds all it had done."""


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Checkpoint:
    """A place for one run: a file, and beside it the one written before.

    The run is saved at the first step that ends ``every`` seconds after the last time, by
    ``clock``. What there is to say (a damaged file, a full disk) goes to ``tell``, a line at a
    time. ``remove`` it once the outcome is in safe hands.
    """

    Paused: ClassVar[type[Exception]] = Paused  # for those who are handed the class alone

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _to_stderr,
    ) -> None:
        if not isinstance(path, str | os.PathLike) or Path(path).suffix != files.SUFFIX:
            raise EngramError(
                f"path must end in {files.SUFFIX} for a checkpoint, not {shown(path)}."
            )
        if not isinstance(every, int | float) or not every >= 0:
            raise EngramError(f"every must be at least 0 seconds, not {shown(every)}.")
        self.path, self.every, self.clock, self.tell = Path(path), every, clock, tell
        self.last: str | None = None  # of which step the last one is, in words
        self.paused = False
        self._before = self.clock()
        self._complaint = ""

    def pause(self) -> None:
        """Let the run save itself when the step in hand ends, and stop with `Paused`.

        A signal handler may call it.
        """
        self.paused = True

    def due(self) -> bool:
        """Whether the run is to be saved now. A clock that went backwards says so too."""
        return self.paused or not 0 <= self.clock() - self._before < self.every

    def save(self, run: Mapping[str, Any], state: Mapping[str, Any], where: str) -> None:
        """Save the state of a run, which is ``where`` in words; the one before is kept beside it.

        A disk that takes no more stops no run: it is told, and tried again the next time.
        """
        contents = Contents({"run": run, "where": where, "torch": torch.__version__}, {})
        contents.document["state"] = encode(dict(state), "state", contents.tensors)
        try:
            files.write(self.path, contents)
        except OSError as error:
            kept = f"that of {self.last} is kept" if self.last else "there is none before it"
            self._complain(f"The checkpoint could not be saved: {error}; {kept}.")
        else:
            self.last, self._complaint = where, ""
        self._before = self.clock()

    def load(self, run: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the state of this very run, or None where there is none; refuse another's.

        Where the newest file is damaged, the one before it is taken.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            files.remove_partial(self.path)
        except (OSError, ValueError) as error:  # a value: no name for a file
            raise EngramError(
                f"No checkpoint can be saved as {str(self.path)!r}: {error}."
            ) from error
        contents = files.newest(self.path, self.tell)
        if contents is None:
            return None
        document = contents.document
        self._check(_with_each(document["run"]), _with_each(run))
        if document["torch"] != torch.__version__:
            self.tell(
                f"The checkpoint is of torch {document['torch']}: with {torch.__version__} the run "
                "may end in other bits."
            )
        state: dict[str, Any] = decode(document["state"], contents.tensors)
        self.last, self._before = document["where"], self.clock()
        return state

    @staticmethod
    def peek(path: Path) -> Mapping[str, Any] | None:
        """Return which run a path has a checkpoint of; None if none that can be read."""
        for place in (path, files.previous_of(path)):
            with suppress(EngramError, OSError):
                described: Mapping[str, Any] = files.read_run(place).document["run"]
                return _with_each(described)
        return None

    @staticmethod
    def saved_in(folder: Path) -> list[Path]:
        """Return the paths of all checkpoints in a folder."""
        return files.saved_in(folder)

    def remove(self) -> None:
        """Remove it: the outcome is in safe hands."""
        files.remove(self.path)

    def _check(self, held: Mapping[str, Any], run: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another run, and name what is different."""
        for name in {**run, **held}:
            mine, theirs = run.get(name), held.get(name)
            if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
                self._check(theirs, mine)
            elif name == "identities" and mine and theirs:
                for one, other in zip(theirs, mine, strict=True):  # there are as many seeds
                    self._check(one, other)
            elif mine != theirs:
                raise EngramError(
                    f"The checkpoint {str(self.path)!r} is of another run: its {name} is "
                    f"{shown(theirs)}, not {shown(mine)}."
                )

    def _complain(self, sentence: str) -> None:
        if sentence != self._complaint:  # the same is not told every minute
            self.tell(sentence)
        self._complaint = sentence


def _with_each(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run with an identity for each seed: where all are alike it is told once."""
    each = run.get("identities") or [run["identity"]] * len(run["seeds"])
    return {**{name: run[name] for name in run if name != "identities"}, "identities": each}
