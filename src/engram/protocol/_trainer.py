"""One pass over T tasks, with the paper's measurements along the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from engram.methods import FinishedTask, Method, Setup, method_entry
from engram.protocol._precision import precision
from engram.protocol._record import Outcome, Record, accuracy
from engram.protocol._spec import Spec
from engram.protocol._steps import task_steps
from engram.streams import Stream, benchmark

_CURVE_BATCHES = 10  # the learning curve covers this many batches of each task
_PROGRESS_EVERY = 50  # steps


class Progress(NamedTuple):
    """How far a run has come; ``step`` counts over all tasks."""

    task: int
    tasks: int
    step: int
    steps: int


def run(
    spec: Spec,
    seeds: Sequence[int],
    *,
    device: str = "cpu",
    progress: Callable[[Progress], None] | None = None,
) -> list[Outcome]:
    """Train and measure one run for each seed, all stacked into one."""
    started = time.perf_counter()
    entry = method_entry(spec.method)
    stream = benchmark(spec.benchmark).build(
        seeds,
        spec.tasks,
        spec.examples,
        settings=spec.stream_settings(),
        tuning=spec.split == "tuning",
        device=device,
    )
    network = stream.network()
    drawn = [stream.initialise(network, seed) for seed in seeds]
    method = entry.build(
        Setup(network, torch.stack(drawn).to(device), seeds, stream), spec.method_settings()
    )
    record = Record(len(seeds), spec.tasks)
    with torch.no_grad(), precision(str(spec.settings.get("precision", "float32"))):
        reads = _Trainer(spec, method, stream, record, progress, entry.joint).train()
    seconds = (time.perf_counter() - started) / len(seeds)
    facts = method.facts() | {"stacked": len(seeds), "reads_after_task": reads}
    return [
        Outcome(
            seed,
            record.accuracy(index),
            record.curve(index),
            seconds,
            _device_name(device),
            dict(facts),
            record.failures[index],
        )
        for index, seed in enumerate(seeds)
    ]


def stacking(spec: Spec, device: str) -> tuple[bool, str]:
    """Say whether the seeds of a spec are to train as one stack on a device, and why."""
    if benchmark(spec.benchmark).stacks and torch.device(device).type == "cuda":
        return True, "a step of this network leaves a GPU idle: more runs cost almost nothing"
    return False, f"a run of {spec.benchmark} keeps the device busy: seeds go one by one"


class _Trainer:
    """The loop over tasks and batches."""

    def __init__(
        self,
        spec: Spec,
        method: Method,
        stream: Stream,
        record: Record,
        progress: Callable[[Progress], None] | None,
        joint: bool,
    ) -> None:
        self.spec, self.method, self.stream, self.record = spec, method, stream, record
        self.progress, self.joint = progress, joint
        self.batch_size = spec.method_settings().batch_size
        self.done = 0  # steps, over all tasks

    def train(self) -> int:
        """Learn every task; return how many examples were read after their single pass."""
        reads = 0
        for task in range(self.spec.tasks):
            reads += self._learn(task)
            last = task == self.spec.tasks - 1
            if not self.joint or last:
                self.method.begin_evaluation()
                for seen in range(task + 1):
                    measured = accuracy(self.method, self.stream, seen)
                    self.record.matrix[:, task, seen] = measured
            if self._all_diverged(task):
                break
        return reads

    def _learn(self, task: int) -> int:
        serve = self.stream.train_jointly if self.joint else self.stream.train
        examples = serve(task)
        self.method.begin_task(task, examples.labels)
        steps = task_steps(self.method, self.stream, examples, self.batch_size)
        for step in range(len(steps)):
            self._measure_curve(task, step)
            steps.take(step)
            self._tell(task, last=step + 1 == len(steps))
        self._measure_curve(task, len(steps))
        finished = FinishedTask(examples)
        self.method.end_task(task, finished)
        return finished.reads

    def _measure_curve(self, task: int, batches: int) -> None:
        if batches <= _CURVE_BATCHES and not self.joint:
            self.method.begin_evaluation()
            measured = accuracy(self.method, self.stream, task, curve=True)
            self.record.curves[task].append(measured)

    def _tell(self, task: int, *, last: bool) -> None:
        self.done += 1
        if self.progress and (self.done % _PROGRESS_EVERY == 0 or last):
            self.progress(Progress(task, self.spec.tasks, self.done, self._all_steps))

    @cached_property
    def _all_steps(self) -> int:
        lengths = [self.stream.length(task) for task in range(self.spec.tasks)]
        return sum(-(-length // self.batch_size) for length in lengths)

    def _all_diverged(self, task: int) -> bool:
        finite = torch.isfinite(self.method.parameters).all(-1).tolist()
        for index, fine in enumerate(finite):
            if not fine and self.record.failures[index] is None:
                rate = self.spec.method_settings().learning_rate
                self.record.failures[index] = (
                    f"The weights became non-finite in task {task + 1} of {self.spec.tasks} "
                    f"(learning_rate {rate:g})."
                )
        return not any(finite)


def _device_name(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return device
