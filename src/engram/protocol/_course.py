"""How far a run has come: counted, saved on its way, and taken up again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from engram.errors import EngramError
from engram.methods import Method
from engram.protocol._checkpoint import Checkpoint, Paused
from engram.protocol._record import Record
from engram.protocol._spec import Spec

_STRANGE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What comes of a state that somebody made. That memory ran out says nothing about a state."""


class Course:
    """How far a run has come, as its checkpoint holds it.

    A position is a task and how many of its steps are done; 0: it has not begun.
    """

    def __init__(
        self,
        spec: Spec,
        method: Method,
        record: Record,
        checkpoint: Checkpoint | None,
        started: float,
    ) -> None:
        self.done = 0  # steps, over all tasks
        self.reads = 0  # examples read after their single pass, for one run
        self.first = 0, 0  # the position that it goes on from
        self._spec, self._method, self._record = spec, method, record
        self._checkpoint, self._started = checkpoint, started
        self._before = 0.0  # seconds, until it was last stopped
        self._run: Mapping[str, Any] = {}  # which one this is, as a checkpoint tells it
        self._saved: Mapping[str, Any] | None = None  # what it goes on from

    @property
    def seconds(self) -> float:
        """The wall-clock time so far, over all resumptions."""
        return self._before + time.perf_counter() - self._started

    def resume(self, run: Mapping[str, Any]) -> None:
        """Become what the checkpoint holds of this very run, if it holds anything."""
        self._run = run
        if self._checkpoint is None:
            return
        self._saved = self._checkpoint.load(run)
        if self._saved:
            try:
                self._become(self._saved)
            except torch.OutOfMemoryError:
                raise
            except _STRANGE as error:  # an EngramError among them
                mine = isinstance(error, EngramError)
                told = str(error) if mine else f"{type(error).__name__}: {error}"
                raise EngramError(
                    f"The checkpoint has a state that is no run's ({told.rstrip('.')}): remove "
                    f"{str(self._checkpoint.path)!r} to begin anew."
                ) from error

    def _become(self, state: Mapping[str, Any]) -> None:
        self.done, self.reads, self._before = state["done"], state["reads"], state["seconds"]
        self.first = state["task"], state["step"]
        if not (0 <= self.first[0] < self._spec.tasks and self.first[1] >= 0):
            raise EngramError(f"The checkpoint is at a place {self.first} that the run has not.")
        self._record.load_state_dict(state["record"])
        self._method.load_state_dict(state["method"])

    def rejoin(self) -> None:
        """Go on inside of a task, whose record of steps began anew with it."""
        if self._saved and self.first[1]:
            self._record.load_steps(self._saved["record"])
        self._saved = None

    def save(self, task: int, step: int) -> None:
        """Save the run at a position; raise `Paused` if it is to stop there."""
        if self._checkpoint is None:
            return
        state = {
            "task": task,
            "step": step,
            "done": self.done,
            "reads": self.reads,
            "seconds": self.seconds,
            "record": self._record.state_dict(),
            "method": self._method.state_dict(),
        }
        where = f"task {task + 1} of {self._spec.tasks}, step {step}"
        self._checkpoint.save(self._run, state, where)
        if self._checkpoint.paused:
            raise Paused(where)
