"""Answering by the nearest mean of exemplars: what iCaRL does when it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from engram.methods._exemplars import Exemplars, distances
from engram.methods._method import Method
from engram.methods._setup import MethodSettings, Setup
from engram.settings import setting

_ROWS_AT_ONCE = 1_000


@dataclass(frozen=True)
class NearestMeanSettings(MethodSettings):
    """How the method is to answer."""

    task_ids: bool = setting(
        True,
        "true: the means of the task asked about decide, as in the comparison; "
        "false: those of all tasks that have ended",
    )


class NearestMean(Method):
    """Holds exemplars, and answers with −distance to the mean of each class's outputs.

    The outputs are those at the present weights; a class without exemplars has −inf. With task
    ids, a task that has not ended is answered by the network's own logits; without, this holds
    only until the first task has ended.
    """

    state: ClassVar[tuple[str, ...]] = (*Method.state, "ended", "exemplars")
    settings: NearestMeanSettings

    def __init__(self, setup: Setup, settings: NearestMeanSettings) -> None:
        super().__init__(setup, settings)
        self.stream = setup.stream
        self.ended = 0  # tasks
        self.exemplars: Exemplars | None = None
        self._means: tuple[Tensor, Tensor] | None = None  # at the present weights, once asked for

    def begin_evaluation(self) -> None:
        """Forget the means, which are of older weights."""
        self._means = None

    def predict(self, inputs: Tensor, columns: Tensor | None, task: int | None) -> Tensor:
        """Return −distances to the class means as logits [R, B, classes]; of all tasks for None."""
        logits = super().predict(inputs, columns, task)
        known = task if self.settings.task_ids else None
        if self.exemplars is None or (known is not None and known >= self.ended):
            return logits
        if self._means is None:
            outputs = self._outputs(self.exemplars.inputs)
            self._means = self.exemplars.means(outputs, self.ended, self.stream.classes)
        asked = slice(None) if known is None else slice(known, known + 1)
        return -distances(logits, *(part[:, asked] for part in self._means))

    def _outputs(self, stored: Tensor) -> Tensor:
        """Return the network's logits for each run's own inputs [R, N, ...]."""
        parts = map(self.stream.normalise, torch.split(stored, _ROWS_AT_ONCE, 1))
        predict, buffers = self.network.predict, self.buffers
        return torch.cat([predict(self.parameters, part, None, buffers) for part in parts], 1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        super().load_state_dict(state)
        if self.exemplars is not None:
            device = self.parameters.device
            self.exemplars = Exemplars(*(part.to(device) for part in self.exemplars))
        self._means = None
