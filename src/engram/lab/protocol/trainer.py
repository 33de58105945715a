"""A run from beginning to end: its tasks, one after another, measured along the way.

`run` reads from top to bottom: data and method, what a checkpoint holds, then task after task and
batch after batch. A step is ``method.observe``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, shown
from engram.kernels import starting
from engram.lab.benchmarks import OwnSettings, Stream, benchmark
from engram.lab.engine import CudaGraphLoop, RuleByRun
from engram.lab.methods import FinishedTask, Method, Setup, method_entry
from engram.lab.networks import ModuleNetwork, Network, stacked
from engram.lab.plan import generator
from engram.lab.protocol.checkpoint import Checkpoint, Paused
from engram.lab.protocol.device import (
    check_device,
    cpu_facts,
    device_name,
    precision,
    precision_of,
    prepare_workspace,
)
from engram.lab.protocol.evaluation import accuracies, curve_point, summaries
from engram.lab.protocol.records import AllDiverged, LossWatch, Outcome, Record, step_facts
from engram.lab.protocol.spec import Spec, identities, one_each
from engram.lab.protocol.stopping import EarlyStopping
from engram.lab.settings import check_whole
from engram.rules import Rule

_CURVE_BATCHES = 10  # the learning curve covers this many batches of each task
_PROGRESS_EVERY = 50  # steps

_BAD_STATE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What comes of a state that somebody made. That memory ran out says nothing about a state."""


class Progress(NamedTuple):
    """How far a run has come; ``step`` counts over all tasks."""

    task: int
    tasks: int
    step: int
    steps: int


def run(
    spec: Spec | Sequence[Spec],
    seeds: Sequence[int],
    *,
    device: str = "cpu",
    progress: Callable[[Progress], None] | None = None,
    record_every: int = 0,
    checkpoint: Checkpoint | None = None,
    deterministic: bool = False,
) -> list[Outcome]:
    """Train and measure one run for each seed, all stacked into one.

    There is one spec for all of them, or one for each, where they differ in nothing but settings
    that the method lets differ in a stack (`Entry.varies`).

    With ``record_every`` what every so many steps are made of is recorded too; it changes nothing.
    With a ``checkpoint`` the run goes on from what that holds of it, is saved on its way, and
    raises `Paused` where it is asked to. A run that was stopped at any step ends, on the same
    device, with the bits of one that was not; on a GPU only if all of it is ``deterministic``.
    """
    started = time.perf_counter()
    check_whole("record_every", record_every)
    if not 0 <= record_every < 2**31:
        raise EngramError(f"record_every must be from 0 to 2^31 - 1, not {record_every}.")
    check_device(device)
    specs = one_each(spec, seeds)
    spec = specs[0]  # what the others differ in is the method's alone
    if deterministic:
        prepare_workspace(device)

    with torch.no_grad(), precision(precision_of(spec), deterministic=deterministic):
        # The data, and the method with a network for each seed.
        with starting(device):
            stream = build_stream(spec, seeds, device)
        method = build_method(specs, stream, device)
        for each in {id(each): each for each in specs}.values():
            each.check_data()  # whatever was read is then what results are filed under
            each.check_network()
        joint = method_entry(spec.method).joint
        serve = stream.train_jointly if joint else stream.train
        batch_size = spec.method_settings().batch_size
        all_steps = 0  # of all tasks, once somebody asks

        # What is measured, and where a checkpoint left off.
        record = Record(len(seeds), spec.tasks, record_every)
        losses = LossWatch(specs, method, stream.seeds, record, checkpoint)
        stopping = None
        if stream.patience:
            stopping = EarlyStopping(method, stream, spec.passes, batch_size)
        state = RunState(spec.tasks, stream, method, record, stopping, started)
        if checkpoint is not None:
            options = {"deterministic": deterministic, "record_every": record_every}
            state.description = _description(specs, method, seeds, device, options)
            state.resume(checkpoint)

        with suppress(AllDiverged):  # what was measured before is then the outcome
            for task in range(state.task, spec.tasks):
                # The task's examples, and the order in which its steps visit them.
                examples = method.stage_examples(serve(task))
                order = visits(examples.labels, spec.passes, stream.seeds, task)
                if state.step == 0:
                    visited = examples.labels if order is None else examples.labels.gather(1, order)
                    method.begin_task(task, visited)
                loop = CudaGraphLoop(
                    examples, batch_size, capture=method.captured, kind=method.kind, order=order
                )
                losses.begin_task(len(loop))
                if stopping is not None:
                    stopping.begin_task(examples.labels.shape[1], resumed=state.step > 0)
                if record.steps is not None:
                    method.begin_recording()
                    record.steps.begin_task(len(loop), examples.labels.device)
                if state.step:  # a checkpoint left off inside of this task
                    loop.seek(state.step)
                state.resume_steps()

                while loop.step < len(loop):
                    step, stop = loop.step, len(loop)
                    if stopping is not None:
                        stop = stopping.next_end(step)
                    if step <= _CURVE_BATCHES and not joint:
                        method.begin_evaluation()
                        record.curves[task].append(curve_point(method, stream, task))
                    if step < _CURVE_BATCHES and not joint:
                        stop = step + 1  # no replay passes the curve's next point

                    # A step, or several: on a GPU they are captured once, and then replayed.
                    with loop.advance(stop) as steps:
                        for current in steps:
                            number, position = current.number, current.position
                            batch = stream.batch(current.inputs, current.labels)
                            method.locate(position)
                            mix = method.observe(number, current.inputs, batch)
                            losses.take(mix, number, position)
                            if record.steps is not None:
                                record.steps.take(mix, number, position)
                            del current, batch  # views of the task's examples, see below

                    before, state.done = state.done, state.done + loop.step - step
                    if progress is not None and (
                        state.done // _PROGRESS_EVERY > before // _PROGRESS_EVERY
                        or loop.step == len(loop)
                    ):
                        all_steps = all_steps or _all_steps(spec, stream, batch_size)
                        progress(Progress(task, spec.tasks, state.done, all_steps))
                    if losses.suspicious(step):
                        losses.check(task)
                    looked_at = range(spec.tasks) if joint else [task]
                    if stopping is not None and stopping.ended(loop.step, looked_at):
                        state.done += len(loop) - loop.step  # steps that are left out
                        break
                    if checkpoint is not None and checkpoint.due():
                        losses.check(task)  # of runs that have diverged the last good one stays
                        state.save(checkpoint, task, loop.step)

                # The end of the task: its curve, what the method makes of it, all tasks so far.
                losses.check(task, ended=True)
                if stopping is not None:
                    stopping.end_task()
                if len(loop) <= _CURVE_BATCHES and not joint:
                    method.begin_evaluation()
                    record.curves[task].append(curve_point(method, stream, task))
                record.curves[task][:] = [point.cpu() for point in record.curves[task]]
                finished = FinishedTask(examples)
                method.end_task(task, finished)
                state.reads += finished.reads
                del loop, examples, finished, order  # there may be no room for two tasks at once
                state.step = 0
                last = task == spec.tasks - 1
                if not joint or last:
                    method.begin_evaluation()
                    settled = task if method.settled and not joint else 0
                    record.matrix[:, task, :settled] = record.matrix[:, task - 1, :settled]
                    measured = accuracies(method, stream, range(settled, task + 1))
                    record.matrix[:, task, settled : task + 1] = measured.cpu()
                if checkpoint is not None and not last and checkpoint.due():
                    state.save(checkpoint, task + 1, 0)

        return _outcomes(state, method, stream, device)


def visits(labels: Tensor, passes: int, seeds: Sequence[int], task: int) -> Tensor | None:
    """Return which of a task's examples [R, N] is learned when, [R, passes · N]; None: as they are.

    The first pass has them as they come, every other in an order of its own, drawn for the seed,
    the task and the pass.
    """
    if passes == 1:
        return None
    count = labels.shape[1]

    def order(seed: int) -> NDArray[np.int64]:
        fresh = (generator(seed, "pass", task, number) for number in range(1, passes))
        return np.concatenate([np.arange(count), *(draw.permutation(count) for draw in fresh)])

    return torch.from_numpy(np.stack([order(seed) for seed in seeds])).to(labels.device)


def build_stream(spec: Spec, seeds: Sequence[int], device: str) -> Stream:
    """Return what the runs of these seeds learn, resident on a device."""
    stream = benchmark(spec.benchmark).build(
        seeds,
        spec.tasks,
        spec.examples,
        settings=spec.stream_settings(),
        tuning=spec.split == "tuning",
        device=device,
    )
    if not isinstance(stream, Stream):
        raise EngramError(
            f"The benchmark {spec.benchmark!r} must build a Stream, not {shown(stream)}."
        )
    stream.passes = spec.passes
    return stream


def build_method(specs: Sequence[Spec], stream: Stream, device: str) -> Method:
    """Return the method with a network for each of the stream's seeds, as each draws it.

    There is a spec for each of them.
    """
    network = build_network(specs[0], stream)
    parameters = stacked([stream.initialise(network, seed) for seed in stream.seeds], device)
    buffers = stream.initial_buffers(network, parameters)
    settings = [spec.method_settings() for spec in specs]
    each = settings if any(one != settings[0] for one in settings) else ()
    setup = Setup(network, parameters, stream.seeds, stream, each, buffers)
    method = method_entry(specs[0].method).build(setup, settings[0])
    _check_batches(network, method, stream, settings[0].batch_size)
    return method


def build_network(spec: Spec, stream: Stream) -> Network:
    """Return the network of a spec, or else the stream's own."""
    if spec.network is None:
        return stream.network()
    return ModuleNetwork(spec.network, stream.shape, stream.classes, precision=precision_of(spec))


def check_network(spec: Spec) -> None:
    """Refuse a spec whose network cannot learn what it is to, before anything is trained.

    A benchmark's own can, unless it starts from a file. A small part of the data is read for any
    other, and a few examples go through it.
    """
    options = spec.stream_settings()
    if spec.network is not None or (isinstance(options, OwnSettings) and options.starts_from_file):
        # What the network prints is nothing of the command's output.
        with torch.no_grad(), redirect_stdout(sys.stderr):
            build_method([spec], build_stream(spec, [0], "cpu"), "cpu")


def _check_batches(network: Network, method: Method, stream: Stream, batch_size: int) -> None:
    """Refuse batches of one example for a network that cannot be trained on one."""
    if network.least_batch(stream.shape) == 1:
        return
    name = network.source.name if isinstance(network, ModuleNetwork) else type(network).__name__
    if method.single_examples:
        raise EngramError(
            f"The network {name!r} cannot be trained on single examples, as this method takes "
            "them: batch statistics need two."
        )
    for task in range(stream.tasks):
        if stream.length(task) * stream.passes % batch_size == 1 or batch_size == 1:
            raise EngramError(
                f"batch_size must be another than {batch_size} for the network {name!r}, which "
                f"cannot be trained on a single example, as the last batch of task {task + 1} is."
            )


@dataclass
class RunState:
    """How far a run has come, as its checkpoint holds it.

    A position is a task and how many of its steps are done; 0: it has not begun.
    """

    tasks: int
    stream: Stream
    method: Method
    record: Record
    stopping: EarlyStopping | None
    started: float
    description: Mapping[str, Any] = field(default_factory=dict)  # which run this is
    task: int = 0  # the position that it goes on from
    step: int = 0
    done: int = 0  # steps, over all tasks
    reads: int = 0  # examples read after their single pass, for one run
    seconds_before: float = 0.0  # until it was last stopped
    saved: Mapping[str, Any] | None = None  # what it goes on from

    @property
    def seconds(self) -> float:
        """The wall-clock time so far, over all resumptions."""
        return self.seconds_before + time.perf_counter() - self.started

    def resume(self, checkpoint: Checkpoint) -> None:
        """Become what the checkpoint holds of this very run, if it holds anything."""
        self.saved = checkpoint.load(self.description)
        if not self.saved:
            return
        try:
            self._load(self.saved)
        except torch.OutOfMemoryError:
            raise
        except _BAD_STATE as error:  # an EngramError among them
            mine = isinstance(error, EngramError)
            message = str(error) if mine else f"{type(error).__name__}: {error}"
            raise EngramError(
                f"The checkpoint has a state that is no run's ({message.rstrip('.')}): remove "
                f"{str(checkpoint.path)!r} to begin anew."
            ) from error

    def _load(self, state: Mapping[str, Any]) -> None:
        self.done, self.reads = state["done"], state["reads"]
        self.seconds_before = state["seconds"]
        self.task, self.step = place = state["task"], state["step"]
        if not (0 <= self.task < self.tasks and self.step >= 0):
            raise EngramError(f"The checkpoint is at a place {place} that the run has not.")
        self.record.load_state_dict(state["record"])
        if self.stopping is not None:
            self.stopping.load_state_dict(state["stopping"])
        self.method.load_state_dict(state["method"])
        self.stream.load_state_dict(state.get("stream", {}))

    def resume_steps(self) -> None:
        """Go on with what has begun anew with the first task: its record, the stream's place."""
        if self.saved is not None and self.step:
            self.record.load_steps(self.saved["record"])
            self.stream.load_state_dict(self.saved.get("stream", {}))
        self.saved = None

    def save(self, checkpoint: Checkpoint, task: int, step: int) -> None:
        """Save the run at a position; raise `Paused` if it is to stop there."""
        state = {
            "task": task,
            "step": step,
            "done": self.done,
            "reads": self.reads,
            "seconds": self.seconds,
            "record": self.record.state_dict(),
            "method": self.method.state_dict(),
            **({} if self.stopping is None else {"stopping": self.stopping.state_dict()}),
            **({"stream": held} if (held := self.stream.state_dict()) else {}),
        }
        where = f"task {task + 1} of {self.tasks}, step {step}"
        checkpoint.save(self.description, state, where)
        if checkpoint.paused:
            raise Paused(where)


def _all_steps(spec: Spec, stream: Stream, batch_size: int) -> int:
    lengths = [stream.length(task) * spec.passes for task in range(spec.tasks)]
    return sum(-(-length // batch_size) for length in lengths)


def _description(
    specs: Sequence[Spec],
    method: Method,
    seeds: Sequence[int],
    device: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what a checkpoint must be of, to be of this very run, as JSON has it."""
    described = {
        **identities(specs),
        "seeds": list(seeds),
        "parameters": method.network.size,
        "buffers": method.network.buffer_size,
        "device": torch.device(device).type,
        **options,
    }
    as_json: dict[str, Any] = json.loads(json.dumps(described))
    return as_json


def _outcomes(state: RunState, method: Method, stream: Stream, device: str) -> list[Outcome]:
    seeds, record = stream.seeds, state.record
    seconds = state.seconds / len(seeds)
    facts: dict[str, int | float | str] = {**method.facts(), **stream.facts()}
    facts |= {"stacked": len(seeds), "reads_after_task": state.reads, **cpu_facts(device)}
    facts |= _network_facts(method)
    at_the_end = [dict[str, float]() for _ in seeds]
    if stream.target is not None and any(each is None for each in record.failures):
        method.begin_evaluation()
        at_the_end = summaries(method, stream)
    steps = [record.steps_of(index) for index in range(len(seeds))]
    return [
        Outcome(
            seed,
            record.accuracy(index),
            record.curve(index),
            seconds,
            device_name(device),
            {
                **facts,
                **({} if state.stopping is None else state.stopping.facts(index)),
                **({} if record.failures[index] else at_the_end[index]),
                **({} if mine is None else step_facts(mine, _rule(method, index))),
            },
            record.failure(index),
            mine,
        )
        for index, (seed, mine) in enumerate(zip(seeds, steps, strict=True))
    ]


def _network_facts(method: Method) -> dict[str, str]:
    """Return which network of the user's own it was, and why its steps were not captured."""
    if not isinstance(method.network, ModuleNetwork):
        return {}
    facts = {"network": method.network.source.short_name}
    if method.parameters.is_cuda and (reason := method.uncaptured()) is not None:
        facts["uncaptured"] = reason
    return facts


def _rule(method: Method, run: int) -> Rule | None:
    return method.rule.of(run) if isinstance(method.rule, RuleByRun) else method.rule
