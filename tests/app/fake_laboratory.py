"""A laboratory that trains in a millisecond; its settings say what is to go wrong."""

import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from engram.errors import EngramError, unknown

METHODS = ("van", "a-gem", "mega-i", "mega-ii", "multi-task")
USUAL = {"learning_rate": 0.1, "sleep": 0.0, "fault": "", "faulty_seed": 0, "trace": ""}


@dataclass(frozen=True)
class Spec:
    benchmark: str
    method: str
    tasks: int
    examples: int
    settings: dict

    def identity(self):
        return {**asdict(self), "data": "abc", "numerics": [1, 1]}


class Progress(NamedTuple):
    task: int
    tasks: int
    step: int
    steps: int


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


def usual(method):
    return {**USUAL, **({"epsilon": 0.001} if method == "mega-i" else {})}


def specify(benchmark, method, *, tasks=None, examples=None, overrides=None):
    if benchmark != "permuted-mnist":
        raise unknown("benchmark", benchmark, ["permuted-mnist"])
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    tasks = 17 if tasks is None else tasks
    if tasks < 1:
        raise EngramError(f"tasks must be at least 1, not {tasks}.")
    settings = usual(method)
    for key, text in (overrides or {}).items():
        settings[key] = type(settings[key])(text)
    return Spec(benchmark, method, tasks, 55_000 if examples is None else examples, settings)


def settings_help(benchmark, method):
    settings = specify(benchmark, method).settings
    return [SettingHelp(name, value, f"what {name} does") for name, value in settings.items()]


def stacking(spec, device):  # noqa: ARG001
    return device != "cpu", "as a test wants it"


def accuracies(spec, seed):
    """By hand: a task has 0.9 when learned and loses 0.1 with each later one, down to 0.2."""
    shift = 0.01 * (seed % 10) + 0.001 * METHODS.index(spec.method)
    return [
        [
            round(max(0.9 - 0.1 * (k - j), 0.2) - shift, 6) if j <= k else None
            for j in range(spec.tasks)
        ]
        for k in range(spec.tasks)
    ]


def run(spec, seeds, *, device="cpu", progress=None):  # noqa: ARG001
    settings = spec.settings
    if settings["trace"]:
        with Path(settings["trace"]).open("a") as file:
            file.write(json.dumps([spec.method, list(seeds), os.getpid()]) + "\n")
    if settings["fault"] == "talk":
        print("a library that talks")
    if progress is not None:
        progress(Progress(0, spec.tasks, 1, 2 * spec.tasks))
    time.sleep(settings["sleep"])
    if settings["faulty_seed"] in seeds:
        _go_wrong(settings["fault"])
    diverged = "The weights became non-finite." if settings["fault"] == "diverge" else None
    return [
        Outcome(
            seed,
            accuracies(spec, seed) if settings["fault"] != "nonsense" else [[float("nan")]],
            [[0.1 + 0.05 * b for b in range(11)]] * spec.tasks,
            facts={"pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS", "")},
            failure=diverged if seed == settings["faulty_seed"] else None,
        )
        for seed in seeds
    ]


def _go_wrong(fault):
    if fault == "raise":
        raise RuntimeError("two\nlines \x1b[31m")
    if fault == "exit":
        os._exit(3)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
