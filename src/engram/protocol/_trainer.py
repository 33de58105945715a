"""One pass over T tasks, with the paper's measurements along the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from engram.methods import FinishedTask, Method, Setup, method_entry
from engram.plan import generator
from engram.protocol._record import Outcome, Record, accuracy
from engram.protocol._spec import Spec
from engram.protocol._steps import TaskSteps
from engram.streams import Stream, stream_class

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
    stream = stream_class(spec.benchmark)(
        seeds,
        spec.tasks,
        spec.examples,
        settings=spec.stream_settings(),
        tuning=spec.split == "tuning",
        device=device,
    )
    network = stream.network()
    drawn = [network.initialise(generator(seed, "parameters")) for seed in seeds]
    method = entry.build(
        Setup(network, torch.stack(drawn).to(device), seeds, stream), spec.method_settings()
    )
    record = Record(len(seeds), spec.tasks)
    with torch.no_grad():
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
    if stream_class(spec.benchmark).stacks and torch.device(device).type == "cuda":
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
        self.steps = -(-spec.examples // self.batch_size)  # in each task

    def train(self) -> int:
        """Learn every task; return how many examples were read after their single pass."""
        reads = 0
        for task in range(self.spec.tasks):
            reads += self._learn(task)
            last = task == self.spec.tasks - 1
            if not self.joint or last:
                for seen in range(task + 1):
                    tests = self.stream.test(seen)
                    self.record.matrix[:, task, seen] = accuracy(self.method, tests, seen)
            if self._all_diverged(task):
                break
        return reads

    def _learn(self, task: int) -> int:
        serve = self.stream.train_jointly if self.joint else self.stream.train
        examples = serve(task)
        self.method.begin_task(task, examples.labels)
        steps = TaskSteps(self.method, self.stream, examples, self.batch_size)
        for step in range(self.steps):
            self._measure_curve(task, step)
            steps.take(step)
            self._tell(task, step + 1)
        self._measure_curve(task, self.steps)
        finished = FinishedTask(examples)
        self.method.end_task(task, finished)
        return finished.reads

    def _measure_curve(self, task: int, batches: int) -> None:
        if batches <= _CURVE_BATCHES and not self.joint:
            tests = self.stream.test(task, curve=True)
            self.record.curves[task].append(accuracy(self.method, tests, task))

    def _tell(self, task: int, step: int) -> None:
        if self.progress and (step % _PROGRESS_EVERY == 0 or step == self.steps):
            done = task * self.steps + step
            self.progress(Progress(task, self.spec.tasks, done, self.spec.tasks * self.steps))

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
