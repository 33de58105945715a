"""A user's own training loop: mixed steps beside the plain passes that they cannot do without.

The models are what people train: an MLP, ResNet-18 on images, GPT-2's architecture on tokens. Their
weights are random, and so is the data, which is on the device. The optimiser is AdamW, fused. On a
GPU the forward passes are of bfloat16 by autocast, images are channels-last, and a step's time is
that of the clock on the wall; on a CPU models are smaller, all is float32, and a step's time is
that of its thread.

The *floor* is plain training on both batches: two passes and a step of the optimiser. On a CPU,
where TorchJD is installed, its steps stand beside: it aggregates the gradients of several losses.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from engram.gradients import GradientMixer, backward
from engram.lab.bench.timing import Turn, median, ratio, take_turns, timed
from engram.learner import Learner
from engram.memory import Memory, Reservoir
from engram.penalties import EWC, MAS, PI, RWALK, Penalty
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Rule

Step = Callable[[], object]
Batch = tuple[Tensor, Tensor]

_RULES: Mapping[str, Callable[[], Rule]] = {
    "VAN": Current,
    "MEGA-I": MEGA1,
    "MEGA-II": MEGA2,
    "A-GEM": AGEM,
}
_PENALTIES: Mapping[str, tuple[Callable[[float], Penalty], int]] = {
    "EWC": (EWC, 5),
    "PI": (PI, 7),
    "MAS": (MAS, 5),
    "RWALK": (RWALK, 12),
}
"""Each penalty, and how many numbers of each weight it may have in memory during a step."""
_MIXED = ("MEGA-I", "MEGA-II", "A-GEM")
TORCHJD = "torchjd"
"""The package whose aggregators stand beside our rules."""
_AGGREGATORS = ("UPGrad", "DualProj")
_PAST_TASKS = 8  # rows of GEM beside the current one
_BLOCKS, _SECONDS = 7, 0.12  # of a candidate's block, about
_SPARE = 1.02  # of the memory that plain training takes
_MEBIBYTE = 2**20


class Workload(NamedTuple):
    """A model, its batches and what is good enough."""

    model: str
    build: Callable[[], nn.Module]
    draw: Callable[[int], Batch]
    """Returns random examples on torch's default device."""
    batches: tuple[int, int]
    """Examples of the current batch and of the one from the memory."""
    held: int
    """Examples that a `Learner` remembers."""
    bound: float | None
    """Times the floor, of a mixed step."""
    channels_last: bool = False
    captured_bound: float | None = None
    gem: bool = False
    """Whether GEM is measured, beside its passes."""

    def described(self) -> str:
        """Return the model and its batches in words."""
        return f"{self.model}, {' + '.join(str(count) for count in self.batches if count)}"


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut, as in ResNet-18."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(filters)
        self.second = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(filters)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != filters:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the activations after both convolutions and the addition."""
        hidden = functional.relu(self.first_norm(self.first(inputs)))
        added: Tensor = self.second_norm(self.second(hidden)) + self.shortcut(inputs)
        return functional.relu(added)


def resnet18(classes: int = 1000) -> nn.Module:
    """Return ResNet-18 for images."""
    stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    blocks = [
        block
        for channels, filters, stride in stages
        for block in (BasicBlock(channels, filters, stride), BasicBlock(filters, filters, 1))
    ]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )


class AttentionBlock(nn.Module):
    """Causal self-attention and two layers, as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.before_layers = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the positions [B, T, D] are after the block."""
        size, length, width = inputs.shape
        merged = self.queries_keys_values(self.before_attention(inputs))
        split = merged.view(size, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = split.unbind()
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = inputs + self.projection(attended.transpose(1, 2).reshape(size, length, width))
        after: Tensor = hidden + self.layers(self.before_layers(hidden))
        return after


class Transformer(nn.Module):
    """GPT-2's architecture: the word embeddings are the weights of the last layer, too."""

    def __init__(self, words: int, length: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(AttentionBlock(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.words, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next words, [B, words, T]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.norm(self.blocks(self.words(tokens) + self.positions(places)))
        logits: Tensor = functional.linear(hidden, self.words.weight)
        return logits.transpose(1, 2)


def mlp() -> nn.Module:
    """Return the paper's network for Permuted MNIST."""
    layers = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    return nn.Sequential(*layers)


def images(side: int, classes: int) -> Callable[[int], Batch]:
    """Return what draws images of noise and their classes."""
    return lambda count: (torch.randn(count, 3, side, side), torch.randint(classes, (count,)))


def texts(words: int, length: int) -> Callable[[int], Batch]:
    """Return what draws random words and, for each, the one that follows."""

    def draw(count: int) -> Batch:
        tokens = torch.randint(words, (count, length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return draw


def vectors(count: int) -> Batch:
    """Return inputs of the MLP and their classes."""
    return torch.rand(count, 784), torch.randint(10, (count,))


def workloads(device: str) -> list[Workload]:
    """Return what is measured on a device."""
    if torch.device(device).type == "cuda":
        return [
            Workload(
                "MLP 784-256-256-10", mlp, vectors, (10, 256), 4000, 1.20, captured_bound=0.35
            ),
            Workload(
                "ResNet-18 at 224",
                resnet18,
                images(224, 1000),
                (64, 64),
                256,
                1.05,
                channels_last=True,
                gem=True,
            ),
            Workload(
                "GPT-2 124M, 512 words",
                lambda: Transformer(50257, 1024, 768, 12, 12),
                texts(50257, 512),
                (8, 8),
                64,
                1.05,
            ),
        ]
    return [
        Workload("MLP 784-256-256-10", mlp, vectors, (10, 256), 4000, 1.10),
        Workload("ResNet-18 at 32", lambda: resnet18(10), images(32, 10), (16, 16), 64, 1.10),
        Workload(
            "transformer 1.3M, 64 words",
            lambda: Transformer(2000, 64, 128, 4, 5),
            texts(2000, 64),
            (8, 8),
            64,
            1.10,
        ),
    ]


def loop(
    device: str, chosen: Sequence[Workload] | None = None, *, blocks: int = _BLOCKS
) -> Iterator[list[dict[str, Any]]]:
    """Measure every way to take a mixed step, with its peak memory, model after model."""
    for workload in chosen or workloads(device):
        yield _measured(workload, _Loop(workload, device), blocks)


def compiled(
    device: str, chosen: Sequence[Workload] | None = None, *, blocks: int = _BLOCKS
) -> Iterator[list[dict[str, Any]]]:
    """Measure mixed steps of models that torch.compile has compiled, beside plain ones of those."""
    for workload in chosen or workloads(device):
        yield _measured(workload, _Compiled(workload, device), blocks)


def penalties(
    device: str, chosen: Sequence[Workload] | None = None, *, blocks: int = _BLOCKS
) -> Iterator[list[dict[str, Any]]]:
    """Measure steps with a penalty, in the second task, beside the plain step on the same batch."""
    if chosen is None:
        cuda = torch.device(device).type == "cuda"
        bounds = {"MLP 784-256-256-10": None if cuda else 1.35, "ResNet-18 at 224": 1.15}
        chosen = [
            each._replace(batches=(each.batches[0], 0), bound=bounds.get(each.model))
            for each in workloads(device)
            if each.model.startswith(("MLP", "ResNet"))
        ]
    for workload in chosen:
        yield _measured(workload, _Penalised(workload, device), blocks)


class Candidate(NamedTuple):
    """One way to take a step."""

    interface: str
    method: str
    build: Callable[[], Step]
    beside: str
    bound: float | None = None
    rows: int = 0
    """Of references: gradients that may be in memory besides plain training's."""

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"{self.interface}: {self.method}"


class _Loop:
    """The candidates of one model, on one device."""

    def __init__(self, workload: Workload, device: str) -> None:
        self.workload, self.device = workload, torch.device(device)
        self.cuda = self.device.type == "cuda"
        torch.manual_seed(0)
        current, reference = workload.batches
        self._current = [self._drawn(current) for _ in range(4)]
        self._reference = [self._drawn(reference) for _ in range(4)]
        self._memory = Memory(Reservoir(workload.held))
        if reference:
            self._memory.add(self._drawn(workload.held))

    def candidates(self) -> list[Candidate]:
        """Return all of them, floors first."""
        bound = self.workload.bound
        found = [
            Candidate("plain", "one pass", lambda: self._plain(1), "plain: one pass"),
            Candidate("plain", "two passes", lambda: self._plain(2), _FLOOR),
            Candidate("plain", "two passes, both graphs first", self._both_graphs, _FLOOR),
            Candidate("GradientMixer", "VAN", lambda: self._mixer("VAN"), "plain: one pass"),
            Candidate("Learner", "VAN", lambda: self._learner("VAN"), "plain: one pass"),
        ]
        for method in _MIXED:
            ways: list[tuple[str, Callable[[str], Step]]] = [
                ("GradientMixer", self._mixer),
                ("engram.backward", self._backward),
                ("Learner", self._learner),
            ]
            found += [
                Candidate(name, method, partial(way, method), _FLOOR, bound, 1)
                for name, way in ways
            ]
        if self.cuda:
            limit = self.workload.captured_bound
            found += [
                Candidate("captured", method, partial(self._captured, method), _FLOOR, limit, 1)
                for method in ("MEGA-II", "A-GEM")
            ]
        if not self.cuda and find_spec(TORCHJD) is not None:
            found += [
                Candidate("TorchJD", name, partial(self._aggregated, name), _FLOOR, None, 1)
                for name in _AGGREGATORS
            ]
        if self.workload.gem:
            passes = f"{_PAST_TASKS + 1} passes"
            found += [
                Candidate(
                    "plain", passes, lambda: self._plain(_PAST_TASKS + 1), f"plain: {passes}"
                ),
                Candidate(
                    "GradientMixer",
                    f"GEM, {_PAST_TASKS} rows",
                    self._gem,
                    f"plain: {passes}",
                    1.10,
                    _PAST_TASKS,
                ),
            ]
        return found

    @property
    def batch_bytes(self) -> int:
        """What the batches of a step take."""
        tensors = [*self._current[0], *self._reference[0]]
        return sum(each.numel() * each.element_size() for each in tensors)

    def model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return a model and its optimiser."""
        torch.manual_seed(0)
        with self.device:
            model = self.workload.build()
        if self.workload.channels_last and self.cuda:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True, capturable=self.cuda)
        return model, optimizer

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        return functional.cross_entropy(self.outputs(model, batch), batch[1])

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs for a batch."""
        with self._precision():
            logits: Tensor = model(batch[0])
        return logits.float()

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast("cuda", torch.bfloat16) if self.cuda else nullcontext()

    def _drawn(self, count: int) -> Batch:
        with self.device:
            inputs, wanted = self.workload.draw(count)
        if self.workload.channels_last and self.cuda:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs, wanted

    def _batches(self) -> Iterator[tuple[Batch, Batch]]:
        return itertools.cycle(zip(self._current, self._reference, strict=True))

    def _plain(self, passes: int) -> Step:
        (model, optimizer), batches = self.model(), self._batches()

        def step() -> None:
            optimizer.zero_grad()
            current, reference = next(batches)
            for _ in range(passes - 1):
                torch.autograd.backward(self.loss(model, reference))
            torch.autograd.backward(self.loss(model, current))
            optimizer.step()

        return step

    def _both_graphs(self) -> Step:
        (model, optimizer), batches = self.model(), self._batches()

        def step() -> None:
            optimizer.zero_grad()
            losses = [self.loss(model, batch) for batch in next(batches)]
            for loss in losses:
                torch.autograd.backward(loss)
            optimizer.step()

        return step

    def _mixer(self, method: str) -> Step:
        (model, optimizer), batches = self.model(), self._batches()
        mixer = GradientMixer(optimizer, _RULES[method]())

        def step() -> None:
            optimizer.zero_grad()  # frees the last mixture before the forward pass
            current, reference = next(batches)
            if method != "VAN":
                mixer.backward(self.loss(model, reference), row="memory")
            mixer.backward(self.loss(model, current))
            mixer.mix()
            optimizer.step()

        return step

    def _backward(self, method: str) -> Step:
        (model, optimizer), batches = self.model(), self._batches()
        parameters, rule = [*model.parameters()], _RULES[method]()

        def step() -> None:
            optimizer.zero_grad()
            losses = [self.loss(model, batch) for batch in next(batches)]
            backward(losses, parameters, rule)
            optimizer.step()

        return step

    def _learner(self, method: str) -> Step:
        (model, optimizer), batches = self.model(), self._batches()
        learner = Learner(
            model,
            optimizer,
            _RULES[method](),
            None if method == "VAN" else self._memory,
            loss=lambda model, batch, _: self.loss(model, batch),
            reference_batch=self.workload.batches[1],
        )
        return lambda: learner.observe(*next(batches)[0])

    def _captured(self, method: str) -> Step:
        (model, optimizer), batches = self.model(), self._batches()
        mixer = GradientMixer(optimizer, _RULES[method]())

        def step(*given: Tensor) -> None:
            mixer.backward(self.loss(model, (given[2], given[3])), row="memory")
            mixer.backward(self.loss(model, (given[0], given[1])))
            mixer.mix()
            optimizer.step()

        captured = mixer.capture(step)

        def take() -> None:
            current, reference = next(batches)
            captured(*current, *reference)

        return take

    def _aggregated(self, aggregator: str) -> Step:
        """Return TorchJD's step, with the settings that were the fastest of all on a CPU."""
        autojac = import_module(f"{TORCHJD}.autojac")
        (model, optimizer), batches = self.model(), self._batches()
        parameters = [*model.parameters()]
        aggregate = getattr(import_module(f"{TORCHJD}.aggregation"), aggregator)()

        def step() -> None:
            optimizer.zero_grad()
            losses = [self.loss(model, batch) for batch in next(batches)]
            autojac.backward(losses, inputs=parameters, parallel_chunk_size=1)
            autojac.jac_to_grad(parameters, aggregate, optimize_gramian_computation=True)
            optimizer.step()

        return step

    def _gem(self) -> Step:
        (model, optimizer), batches = self.model(), self._batches()
        mixer = GradientMixer(optimizer, GEM())

        def step() -> None:
            optimizer.zero_grad()
            current, reference = next(batches)
            for task in range(_PAST_TASKS):
                mixer.backward(self.loss(model, reference), row=task)
            mixer.backward(self.loss(model, current))
            mixer.mix()
            optimizer.step()

        return step


class _Compiled(_Loop):
    """The same for a model that torch.compile has compiled."""

    def __init__(self, workload: Workload, device: str) -> None:
        super().__init__(workload, device)
        # Every model may be compiled anew, and from some number on torch runs them as they are.
        torch.compiler.reset()

    def model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return a compiled model and its optimiser."""
        model, optimizer = super().model()
        # Not model.compile(): of a Sequential that compiles nothing but modules of one's own in it.
        compiled: Any = torch.compile(model)
        return compiled, optimizer

    def candidates(self) -> list[Candidate]:
        """Return a plain step and mixed ones."""
        bound = self.workload.bound
        mixed = [
            Candidate("GradientMixer", name, partial(self._mixer, name), _FLOOR, bound, 1)
            for name in ("MEGA-I", "MEGA-II")
        ]
        return [Candidate("plain", "two passes", lambda: self._plain(2), _FLOOR), *mixed]


class _Penalised(_Loop):
    """Plain steps, and those with a penalty in the place of the optimiser's step."""

    def candidates(self) -> list[Candidate]:
        """Return the plain step and one with each penalty."""
        floor = "plain: one pass"
        held = [
            Candidate(
                "penalty.step", name, partial(self._held, kind), floor, self.workload.bound, numbers
            )
            for name, (kind, numbers) in _PENALTIES.items()
        ]
        return [Candidate("plain", "one pass", lambda: self._plain(1), floor), *held]

    def _held(self, kind: Callable[[float], Penalty]) -> Step:
        (model, optimizer), batches, penalty = self.model(), self._batches(), kind(1e-3)

        def step() -> None:
            optimizer.zero_grad()
            torch.autograd.backward(self.loss(model, next(batches)[0]))
            penalty.step(optimizer)

        for _ in range(10):  # of the first task, in which there is nothing to hold yet
            step()
        ended = [next(batches)[0]]
        penalty.end_task(
            model,
            ended,
            loss=lambda model, batch, _: self.loss(model, batch),
            outputs=self.outputs,  # in the loop's own precision, too
        )
        return step


_FLOOR = "plain: two passes"
_GRAPHS = "plain: two passes, both graphs first"


def _measured(workload: Workload, own: _Loop, blocks: int) -> list[dict[str, Any]]:
    """Return the rows of one model; a way that this machine has not is left out, and told of."""
    candidates, peaks, turns = dict[str, Candidate](), dict[str, float](), dict[str, Turn]()
    for each in own.candidates():
        try:
            if own.cuda and (not peaks or each.interface == "captured"):
                # What libraries keep for a stream (cuBLAS: tens of MiB) is there from here on.
                _first_steps(each.build, own.device)
            step, peak = _first_steps(each.build, own.device)
        except Exception as error:
            if each.interface == "plain":
                raise
            reason = str(error).partition("\n")[0] or type(error).__name__
            warnings.warn(
                f"{workload.described()}: {each.name} is left out: {reason}", stacklevel=2
            )
            continue
        candidates[each.name], peaks[each.name] = each, peak
        turns[each.name] = _turn(step, own.device)
    times = take_turns(turns, blocks, 1)
    model, _ = own.model()
    gradient = sum(each.numel() * each.element_size() for each in model.parameters())
    rows = []
    for name, each in candidates.items():
        # Both losses are given, or on a CPU weighed together: then both graphs are in memory.
        summed = each.name == "Learner: MEGA-I" and not own.cuda
        together = each.interface in ("engram.backward", "TorchJD") or summed
        plain = _GRAPHS if together and _GRAPHS in peaks else each.beside
        allowed = peaks[plain] * _SPARE + each.rows * gradient
        if each.interface == "captured":  # its batches are copied to where the graph reads them
            allowed += own.batch_bytes
        mixed = each.interface != "plain"
        rows.append(
            {
                "model": workload.described(),
                "interface": each.interface,
                "method": each.method,
                "milliseconds": 1e3 * median(times, name),
                "beside": each.beside.removeprefix("plain: "),
                **ratio(times, name, each.beside),
                "bound": each.bound,
                "mebibytes": peaks[name] / _MEBIBYTE,
                "mebibytes_bound": allowed / _MEBIBYTE if mixed and each.bound else None,
            }
        )
    return rows


def _turn(step: Step, device: torch.device) -> Turn:
    """Return turns of a tenth of a second or so, of one step at least."""
    wait = torch.cuda.synchronize if device.type == "cuda" else None
    step()
    if wait is not None:
        wait(device)
    start = time.perf_counter()
    step()
    if wait is not None:
        wait(device)
    count = max(1, round(_SECONDS / (time.perf_counter() - start)))
    if wait is None:
        return timed(step, count)

    def turn() -> float:
        wait(device)
        begin = time.perf_counter()
        for _ in range(count):
            step()
        wait(device)
        return (time.perf_counter() - begin) / count

    return turn


def _first_steps(build: Callable[[], Step], device: torch.device) -> tuple[Step, float]:
    """Return a step, and the most bytes that its model, optimiser and first steps have held."""
    gc.collect()
    if device.type != "cuda":
        return _first_steps_on_cpu(build)
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step = build()
    for _ in range(5):  # a captured step is captured in the fourth
        step()
    torch.cuda.synchronize(device)
    return step, torch.cuda.max_memory_allocated(device) - before


def _first_steps_on_cpu(build: Callable[[], Step]) -> tuple[Step, float]:
    """Do so by the profiler's record of what torch allocates."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would tell of every start and end
    cpu = [ProfilerActivity.CPU]
    with profile(activities=cpu, profile_memory=True, acc_events=True) as record:  # or 2.11 warns
        step = build()
        for _ in range(2):
            step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        record.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    held = [
        (float(each["ts"]), int(each["args"]["Bytes"]))
        for each in events
        if each.get("name") == "[memory]" and each["args"].get("Device Type") == 0
    ]
    return step, max(itertools.accumulate(size for _, size in sorted(held)), default=0)
