"""The training of a candidate: new data and the memory, mixed by a rule, resumable at any step.

A step looks at a batch of the new data and at a sample of the parent's memory, each a row, and
takes the rule's mixture of them. The memory does not change meanwhile: what is read of it and in
which order the data comes are draws by seed, pass and step, so that a training that was killed
goes on to the same weights.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from engram.errors import EngramError, unknown
from engram.gradients import GradientMixer
from engram.lab.plan import generator
from engram.lab.settings import Scalar, Settings, parse, setting
from engram.lab.targets import Target
from engram.memory import Memory
from engram.production.artefact import write_tensors
from engram.production.preprocessing import TARGET, Preprocessing, Rows
from engram.production.sources import DataSettings
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal, Rule

CHECKPOINT = "checkpoint.safetensors"
_RULES: dict[str, Callable[[], Rule]] = {
    "mega-ii": MEGA2,
    "mega-i": MEGA1,
    "a-gem": AGEM,
    "gem": GEM,
    "er": Equal,
    "van": Current,
}
_BATCH = 256  # examples that are predicted at once


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """How a version is trained; an update has its parent's unless told otherwise."""

    method: Literal["mega-ii", "mega-i", "a-gem", "gem", "er", "van"] = setting(
        "mega-ii", "how the gradients of new data and of the memory are mixed"
    )
    passes: int = setting(5, "passes over the new data", least=1)
    optimizer: Literal["adam", "adamw", "sgd"] = setting("adam", "torch's optimiser")
    learning_rate: float = setting(0.001, "the step size", above=0)
    weight_decay: float = setting(0.0, "of adamw and sgd", least=0)
    batch_size: int = setting(32, "examples of the new data in a step", least=1)
    reference_batch: int = setting(64, "examples of the memory in a step", least=1)
    memory: int = setting(2_000, "examples of the past that are kept", least=1)
    exam_share: float = setting(
        0.2, "share of a period's examples held out for its exam", above=0, most=0.5
    )
    exam_most: int = setting(5_000, "examples of a period's exam at most, about", least=1)
    seed: int = setting(0, "of every draw", least=0)


def settings_from(
    texts: Mapping[str, Scalar], bases: Sequence[Settings]
) -> tuple[DataSettings, TrainingSettings]:
    """Return the settings of data and of training, changed by what was given by name."""
    known = {each.name: base for base in bases for each in dataclasses.fields(base)}
    made = []
    for name in texts:
        if name not in known:
            raise unknown("setting", name, known)
    for base in bases:
        mine = {name: value for name, value in texts.items() if known[name] is base}
        as_text = {name: value for name, value in mine.items() if isinstance(value, str)}
        values = {**mine, **parse(type(base), as_text)}
        made.append(dataclasses.replace(base, **values))
    data, training = made
    assert isinstance(data, DataSettings)
    assert isinstance(training, TrainingSettings)
    return data, training


def rule_of(settings: TrainingSettings) -> Rule:
    """Return the rule of a method's name."""
    return _RULES[settings.method]()


@dataclass
class Training:
    """What a training works with; a loop of one's own is called with it.

    ``network`` is trained in place. ``batches()`` yields the new data, pass after pass, as inputs
    and targets; ``reference(count)`` a sample of the past, or None where there is none;
    ``loss(outputs, targets)`` is the loss of the target, a number.
    """

    network: nn.Module
    preprocessing: Preprocessing
    rows: Rows
    past: Rows | None
    past_tasks: np.ndarray
    settings: TrainingSettings
    number: int  # of the version: part of every draw
    device: torch.device
    _position: tuple[int, int] = field(default=(0, 0), init=False)

    @property
    def target(self) -> Target:
        """What the network is to answer."""
        return self.preprocessing.target

    @property
    def size(self) -> int:
        """How many new examples there are."""
        return len(self.rows[TARGET])

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss."""
        return self.target.losses(outputs, targets).mean()

    def batches(self, start: tuple[int, int] = (0, 0)) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and targets of the new data, from a pass and a step on."""
        size, batch = self.size, self.settings.batch_size
        for number in range(start[0], self.settings.passes):
            order = self._draw("order", number).permutation(size)
            steps = [order[place : place + batch] for place in range(0, size, batch)]
            if len(steps) > 1 and len(steps[-1]) == 1:  # which batch norm has no variance of
                steps[-2:] = [np.concatenate(steps[-2:])]
            first = start[1] if number == start[0] else 0
            for step in range(first, len(steps)):
                self._position = (number, step)
                yield self._batch(self.rows, torch.from_numpy(steps[step]))

    def reference(self, count: int) -> tuple[Tensor, Tensor] | None:
        """Return a sample of the past for the step at hand: inputs and targets."""
        if self.past is None:
            return None
        held = len(self.past[TARGET])
        chosen = self._draw("reference", *self._position).permutation(held)[:count]
        return self._batch(self.past, torch.from_numpy(np.sort(chosen)))

    def references(self, rule: Rule, count: int) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield the reference rows that a rule wants: a name, inputs and targets of each."""
        if self.past is None or rule.reference not in ("pooled", "per task"):
            return
        if rule.reference == "pooled":
            found = self.reference(count)
            assert found is not None
            yield "memory", *found
            return
        for task in np.unique(self.past_tasks):
            places = np.flatnonzero(self.past_tasks == task)
            chosen = places[-count:]
            if rule.draws_by_task:
                drawn = self._draw("reference", *self._position, int(task)).permutation(places)
                chosen = np.sort(drawn[:count])
            yield f"period {task}", *self._batch(self.past, torch.from_numpy(chosen))

    def seed_step(self) -> None:
        """Let what a network draws in this step depend on nothing before it."""
        draw = self._draw("step", *self._position)
        seed = int(draw.integers(2**62))
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would format a traceback
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _draw(self, purpose: str, *position: int) -> np.random.Generator:
        return generator(self.settings.seed, f"production {purpose}", self.number, *position)

    def _batch(self, rows: Rows, places: Tensor) -> tuple[Tensor, Tensor]:
        some = {name: column[places] for name, column in rows.items()}
        inputs = self.preprocessing.encode(some).to(self.device)
        return inputs, some[TARGET].to(self.device)


Loop = Callable[[Training], None]
Listener = Callable[[int, int], None]


def read_memory(memory: Memory, preprocessing: Preprocessing) -> tuple[Rows | None, np.ndarray]:
    """Return all that a memory holds as rows of today's width, and the period of each."""
    if not len(memory):
        return None, np.zeros(0, np.int64)
    sample = memory.read(range(len(memory)))
    assert sample.tasks is not None
    rows = preprocessing.inputs.widened(sample.batch)
    return rows, sample.tasks.numpy()


def make_optimizer(network: nn.Module, settings: TrainingSettings) -> Optimizer:
    """Return the optimiser over the parameters that are trained."""
    parameters = [each for each in network.parameters() if each.requires_grad]
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "adamw":
        return AdamW(parameters, lr=rate, weight_decay=decay)
    if settings.optimizer == "sgd":
        return SGD(parameters, lr=rate, weight_decay=decay)
    if decay:
        raise EngramError("weight_decay is of adamw and sgd; adam has none.")
    return Adam(parameters, lr=rate)


def train_network(
    training: Training,
    *,
    checkpoint: Path,
    request: str,
    every: float,
    listener: Listener | None = None,
) -> float:
    """Train; return the seconds it took, those before it was stopped included.

    Every so many seconds what is needed to go on is written to ``checkpoint``; a later call with
    the same ``request`` goes on from there, bit for bit.
    """
    network, settings = training.network, training.settings
    rule, optimizer = rule_of(settings), make_optimizer(network, settings)
    start, before = _resume(checkpoint, request, network, optimizer)
    mixer = GradientMixer(optimizer, rule)
    network.train()
    begun = saved = time.perf_counter()
    each_pass = max(-(-training.size // settings.batch_size), 1)
    devices = [training.device] if training.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        for inputs, targets in training.batches(start):
            training.seed_step()
            for name, past, answers in training.references(rule, settings.reference_batch):
                mixer.backward(training.loss(network(past), answers), row=name)
            mixer.backward(training.loss(network(inputs), targets))
            mixer.mix()
            optimizer.step()
            number, step = training._position
            if listener is not None:
                listener(number * each_pass + step + 1, settings.passes * each_pass)
            if time.perf_counter() - saved >= every:
                seconds = before + time.perf_counter() - begun
                _save(checkpoint, request, network, optimizer, (number, step + 1), seconds)
                saved = time.perf_counter()
    mixer.settle()
    network.eval()
    seconds = before + time.perf_counter() - begun
    _save(checkpoint, request, network, optimizer, (settings.passes, 0), seconds)
    return seconds


def run_training(
    training: Training,
    loop: Loop | None,
    checkpoint: Path,
    request: str,
    every: float,
    listener: Listener | None,
) -> float:
    """Train by ours, or by a loop of the user's; return the seconds it took."""
    if loop is None:
        return train_network(
            training,
            checkpoint=checkpoint,
            request=request,
            every=every,
            listener=listener,
        )
    begun = time.perf_counter()
    training.network.train()
    loop(training)
    training.network.eval()
    for name, value in training.network.state_dict().items():
        if value.is_floating_point() and not value.isfinite().all():
            raise EngramError(f"The loop left values of {name} that are not finite.")
    return time.perf_counter() - begun


def _save(
    path: Path,
    request: str,
    network: nn.Module,
    optimizer: Optimizer,
    position: tuple[int, int],
    seconds: float,
) -> None:
    tensors = {f"model/{name}": value for name, value in network.state_dict().items()}
    numbers: dict[str, Any] = {}
    for place, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{place}/{name}"] = value
            else:
                numbers[f"{place}/{name}"] = value
    document = {
        "request": request,
        "position": position,
        "seconds": seconds,
        "numbers": numbers,
    }
    write_tensors(path, tensors, {"document": json.dumps(document)})


def _resume(
    path: Path, request: str, network: nn.Module, optimizer: Optimizer
) -> tuple[tuple[int, int], float]:
    """Go on from a checkpoint of the same request, if there is one that is whole."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return (0, 0), 0.0
    try:
        with safe_open(path, framework="pt") as file:
            document = json.loads((file.metadata() or {}).get("document", "{}"))
            if document.get("request") != request:
                return (0, 0), 0.0
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError):
        return (0, 0), 0.0
    model, state = dict[str, Tensor](), dict[int, dict[str, Any]]()
    for name, value in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "model":
            model[rest] = value
        else:
            place, _, key = rest.partition("/")
            state.setdefault(int(place), {})[key] = value
    for name, value in document["numbers"].items():
        place, _, key = name.partition("/")
        state.setdefault(int(place), {})[key] = value
    network.load_state_dict(model)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    number, step = document["position"]
    return (int(number), int(step)), float(document["seconds"])


@torch.no_grad()
def answer(
    network: nn.Module, preprocessing: Preprocessing, rows: Rows, device: torch.device
) -> Tensor:
    """Return a network's outputs [n, outputs] for stored rows, on the host."""
    network.eval()
    count = len(next(iter(rows.values())))
    found = []
    for start in range(0, count, _BATCH):
        some = {name: column[start : start + _BATCH] for name, column in rows.items()}
        found.append(network(preprocessing.encode(some).to(device)).float().cpu())
    return torch.cat(found) if found else torch.zeros(0, preprocessing.target.outputs)
