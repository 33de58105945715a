"""A method brought to the last task of a run, so that its steps there can be measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from engram.engine import Recorded
from engram.methods import FinishedTask, laid
from engram.protocol._build import build_method
from engram.protocol._precision import precision
from engram.protocol._record import Record
from engram.protocol._spec import Spec
from engram.protocol._stack import one_each
from engram.protocol._steps import task_steps
from engram.protocol._watch import Watch
from engram.streams import Examples, Stream


class Lesson:
    """A method, the stream that it learns, and its steps as a run takes them."""

    def __init__(self, specs: Sequence[Spec], stream: Stream, device: str) -> None:
        spec = specs[0]
        self.method = build_method(specs, stream, device)
        self._stream, self._last = stream, spec.tasks - 1
        self._batch_size = spec.method_settings().batch_size
        self._watch = Watch(specs, self.method, stream, Record(len(specs), spec.tasks), None)

    def last_task(self, earlier: int) -> Recorded:
        """Learn every task but the last, ``earlier`` examples of each; return the last's steps."""
        for task in range(self._last):
            whole = self._stream.train(task)
            examples = laid(self.method, Examples(*(part[:, :earlier] for part in whole)))
            self._begin(task, examples).take_all()
            self.method.end_task(task, FinishedTask(examples))
        return self._begin(self._last, laid(self.method, self._stream.train(self._last)))

    def _begin(self, task: int, examples: Examples) -> Recorded:
        self.method.begin_task(task, examples.labels)
        watched = self._watch.begin(-(-examples.labels.shape[1] // self._batch_size))
        return task_steps(watched, self._stream, examples, self._batch_size)


@contextmanager
def lesson(
    spec: Spec | Sequence[Spec],
    stream: Stream,
    *,
    device: str = "cpu",
    deterministic: bool = False,
) -> Iterator[Lesson]:
    """Yield the lesson of a spec, or of one for each run, on a stream.

    It is to be had in here, as a run is.
    """
    specs = one_each(spec, stream.seeds)
    kind = str(specs[0].settings.get("precision", "float32"))
    with torch.no_grad(), precision(kind, deterministic=deterministic):
        yield Lesson(specs, stream, device)
