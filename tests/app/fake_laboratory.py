"""A laboratory that trains in a millisecond; its settings say what is to go wrong."""

import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engram.app.runs import Unit
from engram.errors import EngramError, unknown

METHODS = ("van", "a-gem", "mega-i", "mega-ii", "multi-task")
SEARCHED = {"mega-i": {"epsilon": (0.1, 0.01, 0.001)}, "van": {"learning_rate": (0.2, 0.1)}}
USUAL = {
    "learning_rate": 0.1,
    "sleep": 0.0,
    "fault": "",
    "faulty_seed": 0,
    "trace": "",
    "lead": 0.1,
}

STUDY = """
title = "Mine"

[[runs]]
benchmark = "permuted-mnist"
methods = ["van", "mega-ii"]
seeds = 2
tasks = 2
settings = { trace = "TRACE" }

[[runs]]
benchmark = "permuted-mnist"
methods = ["a-gem", "mega-ii"]
seeds = 3
tasks = 2
settings = { trace = "TRACE" }
"""


@dataclass(frozen=True)
class Spec:
    benchmark: str
    method: str
    tasks: int
    examples: int
    settings: dict
    split: str = "training"
    passes: int = 1
    network: None = None

    def description(self):
        given = asdict(self)
        usual = {"split": "training", "passes": 1, "network": None}
        told = {key: given[key] for key in given if usual.get(key) != given[key]}
        return {**told, "numerics": [1, 1]}

    def identity(self):
        return {**self.description(), "data": "abc"}


class Progress(NamedTuple):
    task: int
    tasks: int
    step: int
    steps: int


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


class SettingHelp(NamedTuple):
    name: str
    value: object
    help: str


@dataclass(frozen=True)
class Outcome:
    seed: int
    accuracy: list
    curve: list
    seconds: float = 1.5
    device: str = "cpu"
    facts: dict = field(default_factory=dict)
    failure: str | None = None
    steps: dict | None = None


def usual(method):
    return {**USUAL, **({"epsilon": 0.001} if method == "mega-i" else {})}


def specify(
    benchmark,
    method,
    *,
    tasks=None,
    examples=None,
    overrides=None,
    split="training",
    passes=1,
    network=None,
):
    assert network is None  # there are none here
    if benchmark != "permuted-mnist":
        raise unknown("benchmark", benchmark, ["permuted-mnist"])
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    tasks = (17 if split == "training" else 3) if tasks is None else tasks
    if tasks < 1:
        raise EngramError(f"tasks must be at least 1, not {tasks}.")
    settings = usual(method)
    for key, text in (overrides or {}).items():
        settings[key] = type(settings[key])(text)
    examples = 55_000 if examples is None else examples
    return Spec(benchmark, method, tasks, examples, settings, split, passes)


def tuning_specs(
    benchmark, method, *, tasks=None, examples=None, passes=1, overrides=None, network=None
):
    assert network is None
    usual = specify(benchmark, method, tasks=3 if tasks is None else tasks, examples=examples)
    if not tuned_settings(usual):
        raise EngramError(f"{method} declares no settings to tune.")
    ((name, values),) = SEARCHED[method].items()
    given = {key: type(usual.settings[key])(text) for key, text in (overrides or {}).items()}
    settings = [{**usual.settings, **given, name: value} for value in values]
    return [replace(usual, settings=each, split="tuning", passes=passes) for each in settings]


def check_network(spec):
    assert spec.network is None


def tuned_settings(spec):
    return {name: spec.settings[name] for name in SEARCHED.get(spec.method, {})}


def settings_help(benchmark, method):
    settings = specify(benchmark, method).settings
    return [SettingHelp(name, value, f"what {name} does") for name, value in settings.items()]


def stacking(spec, device):  # noqa: ARG001
    return 1 if device == "cpu" else 5, "as a test wants it"


def stack_key(spec):
    """Runs may differ in what is searched."""
    searched = SEARCHED.get(spec.method, {})
    settings = {name: value for name, value in spec.settings.items() if name not in searched}
    return json.dumps([spec.method, spec.tasks, spec.examples, spec.split, spec.passes, settings])


def unit_of(spec, seeds, **options):
    """Return the unit of some seeds of one spec."""
    return Unit(tuple((spec, seed) for seed in seeds), **options)


def accuracies(spec, seed):
    """By hand: a task has 0.9 when learned and loses 0.1 with each later one, down to 0.2.

    On tuning tasks the second value that is searched is the best, by as much as a setting says.
    """
    shift = 0.01 * (seed % 10) + 0.001 * METHODS.index(spec.method)
    if spec.split == "tuning":
        ((name, values),) = SEARCHED[spec.method].items()
        shift += spec.settings["lead"] * abs(values.index(spec.settings[name]) - 1)
    return [
        [
            round(max(0.9 - 0.1 * (k - j), 0.2) - shift, 6) if j <= k else None
            for j in range(spec.tasks)
        ]
        for k in range(spec.tasks)
    ]


class Checkpoint:
    """A file that says which run was stopped."""

    class Paused(Exception):
        pass

    def __init__(self, path, every=60.0, *, message=print):
        self.path, self.every, self.message, self.paused = path, every, message, False

    def pause(self):
        self.paused = True

    def save(self, specs, seeds):
        self.path.parent.mkdir(exist_ok=True)
        identities = [spec.identity() for spec in specs]
        told = {"identity": identities[0], "identities": identities, "seeds": list(seeds)}
        self.path.write_text(json.dumps(told))

    @staticmethod
    def saved_in(folder):
        return list(folder.glob("*.safetensors"))

    @staticmethod
    def peek(path):
        return json.loads(path.read_text())

    def remove(self):
        self.path.unlink(missing_ok=True)


def run(
    spec,
    seeds,
    *,
    device="cpu",  # noqa: ARG001
    progress=None,
    record_every=0,
    checkpoint=None,
    deterministic=False,
):
    specs = [spec] * len(seeds) if isinstance(spec, Spec) else spec
    spec, settings = specs[0], specs[0].settings
    resumed = checkpoint is not None and checkpoint.path.exists()
    if settings["trace"]:
        with Path(settings["trace"]).open("a") as file:
            file.write(json.dumps([spec.method, list(seeds), os.getpid(), resumed]) + "\n")
    if settings["fault"] == "talk":
        print("a library that talks \x1b[2J")
    if progress is not None:
        progress(Progress(0, spec.tasks, 1, 2 * spec.tasks))
    until = time.monotonic() + (0 if resumed else settings["sleep"])
    while time.monotonic() < until:
        time.sleep(min(settings["sleep"], 0.02))
        if (
            checkpoint is not None
            and checkpoint.paused
            and not settings["fault"].startswith("deaf")
        ):
            checkpoint.save(specs, seeds)
            raise checkpoint.Paused
    if settings["faulty_seed"] in seeds:
        _go_wrong(settings["fault"], checkpoint, resumed, specs, seeds)
    diverged = "The weights became non-finite." if settings["fault"] == "diverge" else None
    return [
        Outcome(
            seed,
            accuracies(mine, seed) if settings["fault"] != "nonsense" else [[float("nan")]],
            [[0.1 + 0.05 * b for b in range(11)]] * spec.tasks,
            facts={
                "pid": os.getpid(),
                "threads": os.environ.get("OMP_NUM_THREADS", ""),
                "data": os.environ.get("ENGRAM_DATA", ""),
                "deterministic": int(deterministic),
                **({"recorded_steps": spec.tasks} if record_every else {}),
            },
            failure=diverged if seed == settings["faulty_seed"] else None,
            steps=steps(spec, record_every) if record_every else None,
        )
        for mine, seed in zip(specs, seeds, strict=True)
    ]


def steps(spec, record_every):
    """A step in each task; its k2 says how many of its kind there were."""
    k2 = np.full(spec.tasks, record_every, np.float32)
    return {"task": np.arange(spec.tasks, dtype=np.int32), "k2": k2}


def _go_wrong(fault, checkpoint, resumed, specs, seeds):
    if fault == "die-once" and not resumed:
        checkpoint.save(specs, seeds)
        checkpoint.message("a line to\nthe user")
        os.kill(os.getpid(), signal.SIGKILL)
    if fault in ("small-gpu", "deaf-small-gpu") and len(seeds) > 2:
        try:
            raise OutOfMemoryError("CUDA out of memory.")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    if fault == "tiny-gpu":
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")
    if fault == "handler":
        try:
            raise OutOfMemoryError("CUDA out of memory.")
        finally:
            raise KeyError("a bug of its own")
    if fault == "handled":
        try:
            raise OutOfMemoryError("CUDA out of memory.")
        except OutOfMemoryError:
            raise RuntimeError("a bug of its own") from None
    if fault == "circle":
        error = RuntimeError("a bug of its own")
        error.__context__ = RuntimeError("another")
        error.__context__.__context__ = error
        raise error
    if fault == "capture":
        raise RuntimeError("capture: a bug of its own")
    if fault == "raise":
        raise RuntimeError("two\nlines \x1b[31m")
    if fault == "exit":
        os._exit(3)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
