"""A method brought to the last task of a run, so that its steps there can be measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import CudaGraphLoop
from engram.lab.methods import FinishedTask
from engram.lab.protocol.device import precision, precision_of
from engram.lab.protocol.records import LossWatch, Record
from engram.lab.protocol.spec import Spec, one_each
from engram.lab.protocol.trainer import build_method


class BenchmarkSession:
    """A method, the stream that it learns, and its steps as a run takes them."""

    def __init__(self, specs: Sequence[Spec], stream: Stream, device: str) -> None:
        spec = specs[0]
        self.method = build_method(specs, stream, device)
        self._stream, self._last = stream, spec.tasks - 1
        self._batch_size = spec.method_settings().batch_size
        record = Record(len(specs), spec.tasks)
        self._losses = LossWatch(specs, self.method, stream.seeds, record, None)

    def last_task(self, earlier: int) -> CudaGraphLoop:
        """Learn every task but the last, ``earlier`` examples of each; return the last one's loop.

        Its steps are `take`'s.
        """
        for task in range(self._last):
            whole = self._stream.train(task)
            examples = self._begin(task, Examples(*(part[:, :earlier] for part in whole)))
            step = 0
            while step < len(self._loop):
                step = self.take(step, len(self._loop))
            self.method.end_task(task, FinishedTask(examples))
        self._begin(self._last, self._stream.train(self._last))
        return self._loop

    def _begin(self, task: int, examples: Examples) -> Examples:
        method = self.method
        examples = method.stage_examples(examples)
        method.begin_task(task, examples.labels)
        self._loop = CudaGraphLoop(
            examples, self._batch_size, capture=method.captured, kind=method.kind
        )
        self._losses.begin_task(len(self._loop))
        return examples

    def take(self, step: int, stop: int | None = None) -> int:
        """Take a step, or several before ``stop``, as a run does; return the number of the next."""
        loop = self._loop
        if loop.step != step:
            loop.seek(step)
        with loop.advance(stop) as steps:
            for number, stored, labels, position in steps:
                self.method.locate(position)
                mix = self.method.observe(number, stored, self._stream.batch(stored, labels))
                self._losses.take(mix, number, position)
        return loop.step


@contextmanager
def benchmark_session(
    spec: Spec | Sequence[Spec],
    stream: Stream,
    *,
    device: str = "cpu",
    deterministic: bool = False,
) -> Iterator[BenchmarkSession]:
    """Yield the session of a spec, or of one for each run, on a stream.

    It is to be had in here, as a run is.
    """
    specs = one_each(spec, stream.seeds)
    with torch.no_grad(), precision(precision_of(specs[0]), deterministic=deterministic):
        yield BenchmarkSession(specs, stream, device)
