"""One spec, trained and measured from beginning to end, or on from where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from engram.engine import RuleByRun
from engram.errors import EngramError
from engram.kernels import starting
from engram.methods import Method
from engram.protocol._build import build_method, build_stream
from engram.protocol._checkpoint import Checkpoint
from engram.protocol._device import cpu_facts, device_name
from engram.protocol._precision import check_device, precision, prepare_workspace
from engram.protocol._record import Outcome, Record
from engram.protocol._spec import Spec
from engram.protocol._stack import identities, one_each
from engram.protocol._step_facts import step_facts
from engram.protocol._trainer import Progress, Trainer
from engram.rules import Rule
from engram.settings import check_whole


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
    if deterministic:
        prepare_workspace(device)
    first = specs[0]
    kind = str(first.settings.get("precision", "float32"))
    with torch.no_grad(), precision(kind, deterministic=deterministic):
        with starting(device):
            stream = build_stream(first, seeds, device)
        method = build_method(specs, stream, device)
        for each in {id(each): each for each in specs}.values():
            each.check_data()  # whatever was read is then what results are filed under
        record = Record(len(seeds), first.tasks, record_every)
        trainer = Trainer(specs, method, stream, record, progress, checkpoint, started)
        if checkpoint is not None:
            options = {"deterministic": deterministic, "record_every": record_every}
            trainer.course.resume(_described(specs, method, seeds, device, options))
        trainer.train()
        return _outcomes(trainer, seeds, device)


def _described(
    specs: Sequence[Spec],
    method: Method,
    seeds: Sequence[int],
    device: str,
    options: dict[str, Any],
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


def _outcomes(trainer: Trainer, seeds: Sequence[int], device: str) -> list[Outcome]:
    record, method = trainer.record, trainer.method
    seconds = trainer.course.seconds / len(seeds)
    facts: dict[str, int | float | str] = {**method.facts(), **trainer.stream.facts()}
    facts |= {"stacked": len(seeds), "reads_after_task": trainer.course.reads, **cpu_facts(device)}
    steps = [record.steps_of(index) for index in range(len(seeds))]
    return [
        Outcome(
            seed,
            record.accuracy(index),
            record.curve(index),
            seconds,
            device_name(device),
            {**facts, **({} if mine is None else step_facts(mine, _rule(method, index)))},
            record.failure(index),
            mine,
        )
        for index, (seed, mine) in enumerate(zip(seeds, steps, strict=True))
    ]


def _rule(method: Method, run: int) -> Rule | None:
    rule: Rule | None = getattr(method, "rule", None)
    return rule.of(run) if isinstance(rule, RuleByRun) else rule
