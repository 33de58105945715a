"""Any `nn.Module` as a network of the laboratory: the general case of those written by hand.

The module is asked for logits and autograd for the gradient. What it learns lies in the run's
flat parameters; what it holds beside (buffers of any kind, parameters that it does not learn) lies
in the run's buffers, as bytes. Both are put into the one module before each pass, so that it
serves any number of runs and keeps nothing of its own.
"""

from __future__ import annotations

import copy
import gc
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.errors import EngramError, on_one_line
from engram.lab.networks.gpu import Branches, rounding
from engram.lab.networks.network import Network
from engram.lab.networks.registry import (
    NetworkSource,
    check_outputs,
    drawing_from,
    naming,
)

_LINE = 64  # bytes: where a buffer may begin
_WIDEST = 8  # bytes of a number of float64, for which there is room
_COUNTER = 2 * _WIDEST  # of the draws: a seed, and how many passes have drawn
_ROWS_AT_ONCE = 500  # predicted: a batch of tests is as large as suits the benchmark's own network
_MOST_SEED = 2**63


class _Learned(NamedTuple):
    """A parameter that is learned, and where it lies in the flat vector."""

    name: str
    shape: tuple[int, ...]
    inputs_last: bool  # as a module with channels last has its kernels
    places: list[tuple[dict[str, Tensor], str]]  # all of them, where weights are tied

    def view(self, part: Tensor) -> Tensor:
        """Return it as a view of its part [..., n] of flat vectors."""
        if not self.inputs_last:
            return part.view((*part.shape[:-1], *self.shape))
        outputs, inputs, height, width = self.shape
        return part.view(*part.shape[:-1], outputs, height, width, inputs).movedim(-1, -3)

    def flattened(self, value: Tensor) -> Tensor:
        """Return a tensor like it, [..., *shape], as it lies in a flat vector."""
        leading = value.dim() - len(self.shape)
        if self.inputs_last:
            value = value.movedim(-3, -1)
        return value.flatten(leading) if self.shape else value.unsqueeze(-1)


class _Held(NamedTuple):
    """A buffer, or a parameter that is not learned, and where it lies among the bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    places: list[tuple[dict[str, Tensor], str]]

    def view(self, memory: Tensor, dtype: torch.dtype) -> Tensor:
        """Return it as a view of a run's bytes; what is of float32 is of the run's own floats."""
        mine = dtype if self.dtype == torch.float32 else self.dtype
        length = math.prod(self.shape) * mine.itemsize
        part = memory[..., self.start : self.start + length]
        return part.view(mine).view((*memory.shape[:-1], *self.shape))


class Behaviour(NamedTuple):
    """What two examples that go through a network show of it."""

    draws: bool  # random numbers, as dropout does
    mixes: bool  # an example's outputs in training depend on the others of its batch
    least_batch: int  # examples without which it cannot be trained: 1 or 2
    moves: frozenset[str]  # what it holds and changes in training
    moves_tested: bool  # and what it changes when it is asked for predictions
    alone: str | None  # why runs are not stacked in one pass, or None
    writes: bool = False  # to its inputs, which are the stream's or the memory's


class ModuleNetwork(Network):
    """A module of anybody's as a function of flat parameters, for R runs.

    Runs go through it one after another (on a GPU side by side), or stacked by `torch.func.vmap`
    where that pays: where there are no convolutions, nothing is drawn and nothing is held that
    changes. Every run draws its own initial weights, by the laboratory's plan, and its own random
    numbers in each pass: by a seed and a count of passes that are part of its buffers. So a run is
    the same alone, stacked or resumed.

    >>> from engram.lab.networks.registry import network_source
    >>> network = ModuleNetwork(network_source("mlp"), (784,), 10)
    >>> network.size, network.buffer_size
    (269322, 0)
    """

    def __init__(
        self,
        source: NetworkSource,
        shape: Sequence[int],
        outputs: int,
        *,
        precision: str = "float32",
    ) -> None:
        self.source, self.shape, self.outputs = source, tuple(shape), outputs
        self._autocast, self._tf32 = precision == "bfloat16", precision == "tf32"
        with drawing_from(0):
            module = source.build(self.shape, outputs)
        self._module = module = _copied(module)
        owners = _owners(module)
        self._learned, self._held = list[_Learned](), list[_Held]()
        start = _LINE  # the counter is before it
        for name, value in _tensors(module).items():
            places = [(owner, key) for owner, key, each in owners if each is value]
            shape_ = tuple(value.shape)
            if isinstance(value, nn.Parameter) and value.requires_grad:
                last = value.dim() == 4 and not value.is_contiguous()
                self._learned.append(_Learned(name, shape_, last, places))
            else:
                self._held.append(_Held(name, shape_, value.dtype, start, places))
                width = max(value.dtype.itemsize, _WIDEST)
                start += -(-math.prod(shape_) * width // _LINE) * _LINE
        self._places = [each.places for each in self._learned]
        self._places += [each.places for each in self._held]
        self._lengths = [math.prod(each.shape) for each in self._learned]
        self.size = sum(self._lengths)
        self._initial_held = [_owned(value, each) for value, each in self._values(module)]
        self._known: tuple[Tensor, list[list[Tensor]]] | None = None  # leaves of these parameters
        self.buffer_size = start  # for what is looked at now
        self.behaviour = self._observed()
        self.buffer_size = start if self._held or self.behaviour.draws else 0

    @property
    def one_part(self) -> bool:
        """Whether a pass takes one part of a batch: the parts' gradients are autograd's sums."""
        return True

    def least_batch(self, shape: Sequence[int]) -> int:  # noqa: ARG002
        """Return how many examples a training pass needs: 2 where batch statistics do."""
        return self.behaviour.least_batch

    def uncapturable(self, parameters: Tensor, *, pads: bool) -> str | None:
        """Return why a step with it is not captured in a CUDA graph; None: it may be."""
        if self.behaviour.draws:
            return "the network draws random numbers, which a replayed step would not draw anew"
        if self.behaviour.mixes and pads:
            return "the network has statistics of batches that are not all of one length"
        if parameters.is_cuda and not self._tried:
            self._tried, self._capture_fault = True, self._fault_when_captured(parameters)
        return self._capture_fault

    _tried = False
    _capture_fault: str | None = None

    def _fault_when_captured(self, parameters: Tensor) -> str | None:
        """Try a pass on a GPU as a captured one is: nothing is read back, and a graph is made.

        What it is tried on are copies.
        """
        device = parameters.device
        weights = parameters[:1].clone()
        held = self.initial_buffers(weights)
        inputs = torch.rand(1, 2, *self.shape, dtype=weights.dtype, device=device)
        row = torch.empty_like(weights).unsqueeze(1)

        def tried() -> None:
            logits, tape = self.forward(weights, inputs, held)
            self.backward(weights, tape, torch.ones_like(logits), row)

        before, collects = torch.cuda.get_sync_debug_mode(), gc.isenabled()
        try:
            tried()
            torch.cuda.synchronize(device)
            torch.cuda.set_sync_debug_mode("error")
            tried()
            torch.cuda.set_sync_debug_mode(before)
            gc.disable()  # the end of an older graph spoils a new one
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with (
                torch.cuda.device(device),
                torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream),
            ):
                tried()
            torch.cuda.synchronize(device)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            return f"the network cannot be captured: {on_one_line(str(error))[:200]}"
        finally:
            torch.cuda.set_sync_debug_mode(before)
            if collects:
                gc.enable()
        return None

    def named_parameters(self, flat: Tensor) -> dict[str, Tensor]:
        """Return one run's learned parameters [d] as views, by the module's names."""
        return dict(zip((each.name for each in self._learned), self.tensors(flat), strict=True))

    def named_buffers(
        self, memory: Tensor, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Return what one run holds beside, [b] bytes, as views, by the module's names."""
        return {each.name: each.view(memory, dtype) for each in self._held}

    def tensors(self, flat: Tensor) -> list[Tensor]:
        """Return the parameters [..., d] as the module has them, views [..., *shape]."""
        parts = flat.split_with_sizes(self._lengths, -1)
        return [each.view(part) for each, part in zip(self._learned, parts, strict=True)]

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's parameters [d]: a module is made anew."""
        module, _ = self._made(source)
        values = _tensors(module)
        return torch.cat([each.flattened(values[each.name].detach()) for each in self._learned])

    def initial_buffers(
        self, parameters: Tensor, sources: Sequence[np.random.Generator] = ()
    ) -> Tensor:
        """Return the bytes [R, b] that R runs hold beside their parameters.

        They are of modules drawn from ``sources``, those that the runs' parameters are drawn from.
        """
        memory = torch.zeros(len(parameters), self.buffer_size, dtype=torch.uint8)
        if not self.buffer_size:
            return memory.to(parameters.device)
        for run, row in enumerate(memory):
            held, seed = self._initial_held, run
            if sources:
                module, seed = self._made(sources[run])
                held = [_owned(value, each) for value, each in self._values(module)]
            for each, value in zip(self._held, held, strict=True):
                each.view(row, parameters.dtype).copy_(value)
            _counter(row)[0] = seed
        return memory.to(parameters.device)

    def forward(
        self,
        parameters: Tensor,
        inputs: Tensor,
        buffers: Tensor,
        *,
        weights: Tensor | None = None,
        training: bool = True,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return logits [R, B, outputs], and a tape of them and of the parameters they come from.

        A module that mixes the examples of a batch, or draws, is shown those alone that have a
        weight; the others' logits are 0.
        """
        apart = training and (self.behaviour.mixes or self.behaviour.draws)
        present = weights if apart else None
        with torch.enable_grad(), self._numerics(inputs.device):
            if self._stacks(len(parameters), present):
                leaves = [_leaf(each) for each in self.tensors(parameters)]
                logits = self._stacked(leaves, buffers, inputs, training)
                return logits.detach(), [logits, *leaves]
            tape, every, branches = list[Tensor](), list[Tensor](), Branches(inputs.device)
            for run, leaves in enumerate(self._leaves(parameters)):
                shown = None if present is None else present[run]
                with branches.branch():
                    held = self._views(buffers, run, parameters.dtype, training)
                    every.append(self._pass(leaves, held, inputs[run], shown, training))
                tape += leaves
            branches.join()
            logits = torch.stack(every)
        return logits.detach(), [logits, *tape]

    def backward(
        self,
        parameters: Tensor,  # noqa: ARG002
        tape: list[Tensor],
        gradient: Tensor,
        rows: Tensor,
    ) -> None:
        """Let autograd go back along the tape."""
        logits, *leaves = tape
        with self._numerics(gradient.device):
            found = torch.autograd.grad(logits, leaves, gradient, allow_unused=True)
        values = [
            torch.zeros_like(leaf) if value is None else value
            for value, leaf in zip(found, leaves, strict=True)
        ]
        count = len(self._learned)
        stacked = values[0].dim() > len(self._learned[0].shape)
        for run, row in enumerate([rows[:, 0]] if stacked else rows[:, 0]):
            mine = zip(self._learned, values[run * count : (run + 1) * count], strict=True)
            torch.cat([each.flattened(value) for each, value in mine], -1, out=row)

    def predict(
        self, parameters: Tensor, inputs: Tensor, columns: Tensor | None, buffers: Tensor
    ) -> Tensor:
        """Return logits [R, B, outputs] for inputs [B, ...] that all runs share, or [R, B, ...]."""
        logits = list[Tensor]()
        own = inputs.dim() > len(self.shape) + 1 if columns is None else inputs.dim() > 2
        with torch.no_grad(), self._numerics(inputs.device):
            for run, leaves in enumerate(self._leaves(parameters)):
                held = self._views(buffers, run, parameters.dtype, training=False)
                mine = inputs[run] if own else inputs
                parts = [mine] if columns is None else self._placed(mine, columns[run])
                found = [
                    self._pass(leaves, held, few, None, training=False)
                    for part in parts
                    for few in torch.split(part, _ROWS_AT_ONCE)
                ]
                logits.append(torch.cat(found))
        return torch.stack(logits)

    def apart(self, buffers: Tensor, passes: int) -> Tensor | None:
        """Return what passes that go side by side move each, or None if they must go in turn.

        Running averages of batch norm can be put together afterwards; of what anybody else holds
        nothing is known.
        """
        return None if self._shares is None else buffers.expand(passes, *buffers.shape).clone()

    def put_together(self, buffers: Tensor, apart: Tensor) -> None:
        """Let the buffers be what the passes, one after another, would have left.

        Of a running average a with share m of the newest, a pass makes (1 - m) a + m s. So the
        first one's change, a₁ - a, comes through the second with (1 - m) of it.
        """
        assert self._shares is not None
        before = buffers.clone()
        for each in self._held:
            share = self._shares.get(each.name)
            if share is None:
                continue
            start, total = each.view(before, self._dtype), each.view(buffers, self._dtype)
            for moved in apart:
                before_it = (total - start) * (1 - share) if share else total - start
                total.copy_(before_it + each.view(moved, self._dtype))

    def average_buffers(self, average: Tensor, buffers: Tensor, share: Tensor) -> None:
        """Move an average of buffers [R, b] a ``share`` [R, 1] of the way to what they are now.

        Only numbers that training moves have an average; of all else it holds what is there now.
        """
        before = average.clone()
        average.copy_(buffers)
        for each in self._held:
            if each.name in self.behaviour.moves and each.dtype.is_floating_point:
                then, now = each.view(before, self._dtype), each.view(average, self._dtype)
                mine = share.view(-1, *[1] * len(each.shape)).to(now.dtype)
                now.copy_(torch.lerp(then, now.clone(), mine))

    def progressive(self, first: Tensor) -> NoReturn:  # noqa: ARG002
        """Refuse: columns read one another's layers, of which nothing is known here."""
        raise EngramError(
            f"prog-nn grows by columns of the laboratory's own MLP or ResNet, and cannot with the "
            f"network {self.source.name!r}: leave --network out, or choose another method."
        )

    # ---- passes ----------------------------------------------------------------------------------

    _dtype = torch.float32  # of the parameters that were seen last

    def _leaves(self, parameters: Tensor) -> list[list[Tensor]]:
        """Return each run's parameters as leaves of autograd's graphs."""
        self._dtype = parameters.dtype
        if parameters.is_cuda:  # a leaf belongs to the stream that it is first used on
            return [[_leaf(each) for each in self.tensors(row)] for row in parameters]
        if self._known is None or self._known[0] is not parameters:
            leaves = [[_leaf(each) for each in self.tensors(row)] for row in parameters]
            self._known = parameters, leaves
        return self._known[1]

    def _views(
        self, buffers: Tensor, run: int, dtype: torch.dtype, training: bool
    ) -> tuple[list[Tensor], Tensor | None]:
        """Return what a run holds, and its counter of draws; what must not change is a copy."""
        if not self.buffer_size:
            return [], None
        memory = buffers[run]
        if not training and self.behaviour.moves_tested:
            memory = memory.clone()
        # By ``data`` each counts its own changes: autograd would take another one's for its own.
        held = [each.view(memory, dtype).data for each in self._held]
        return held, _counter(memory) if self.behaviour.draws else None

    def _pass(
        self,
        weights: Sequence[Tensor],
        held: tuple[Sequence[Tensor], Tensor | None],
        inputs: Tensor,
        present: Tensor | None,
        training: bool,
    ) -> Tensor:
        """Return one run's logits [B, outputs]."""
        views, counter = held
        rows = None if present is None else (present > 0).nonzero().flatten()
        shown = inputs if rows is None or len(rows) == len(inputs) else inputs[rows]
        with self._drawing(counter, training, inputs.device):
            logits = self._called(weights, views, shown, training)
        if shown is not inputs:
            assert rows is not None
            logits = logits.new_zeros(len(inputs), self.outputs).index_copy(0, rows, logits)
        return logits

    def _called(
        self, weights: Sequence[Tensor], held: Sequence[Tensor], inputs: Tensor, training: bool
    ) -> Tensor:
        module = self._module
        for places, value in zip(self._places, (*weights, *held), strict=True):
            for owner, key in places:
                owner[key] = value
        if module.training is not training:
            module.train(training)
        try:
            logits: Tensor = module(inputs.clone() if self.behaviour.writes else inputs)
        except (EngramError, torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except Exception as error:
            with naming(self.source.name, "trained" if training else "tested"):
                raise error
        if not isinstance(logits, Tensor):
            check_outputs(self.source.name, logits, len(inputs), self.outputs)
        for each, value in zip(self._held, held, strict=True):
            owner, key = each.places[0]
            if (assigned := owner[key]) is value:
                continue
            # The module has assigned to its buffer, rather than changed it.
            if assigned.shape != value.shape:
                raise EngramError(
                    f"The network {self.source.name!r} must leave its buffers as large as they "
                    f"are, and makes {each.name} {list(assigned.shape)} of {list(value.shape)}."
                )
            value.copy_(assigned)
        if logits.dtype != weights[0].dtype:
            logits = logits.to(weights[0].dtype)
        return logits

    def _stacked(
        self, weights: Sequence[Tensor], buffers: Tensor, inputs: Tensor, training: bool
    ) -> Tensor:
        """Return all runs' logits by one pass of vmap over them."""
        held = [each.view(buffers, weights[0].dtype) for each in self._held if self.buffer_size]

        def one(mine: list[Tensor], own: list[Tensor], examples: Tensor) -> Tensor:
            return self._called(mine, own, examples, training)

        stacked: Tensor = torch.func.vmap(one)(list(weights), held, inputs)
        return stacked

    def _stacks(self, runs: int, present: Tensor | None) -> bool:
        return runs > 1 and present is None and self.behaviour.alone is None

    def _placed(self, inputs: Tensor, columns: Tensor) -> Iterator[Tensor]:
        """Yield test inputs [B, n] as whole ones, once for each group of columns: a `TestBatch`."""
        for places in columns if columns.dim() == 2 else columns.unsqueeze(0):
            whole = inputs.new_zeros(len(inputs), math.prod(self.shape))
            whole[:, places] = inputs
            yield whole.view(-1, *self.shape)

    @contextmanager
    def _numerics(self, device: torch.device) -> Iterator[None]:
        with ExitStack() as stack:
            if self._autocast:  # without the cache of cast weights: weights change
                stack.enter_context(
                    torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
                )
            if self._tf32:
                stack.enter_context(rounding(tf32=True))
            yield

    def _drawing(
        self, counter: Tensor | None, training: bool, device: torch.device
    ) -> AbstractContextManager[None]:
        """Let a pass draw from its run's own seed and number of passes."""
        if counter is None:
            return nullcontext()
        seed, count = counter.tolist()
        if training:
            counter[1] += 1
        mixed = np.random.SeedSequence(entropy=seed, spawn_key=(count,))
        return drawing_from(int(mixed.generate_state(1, np.uint64)[0]) % _MOST_SEED, device)

    def _made(self, source: np.random.Generator) -> tuple[nn.Module, int]:
        """Return a module with weights of its own, and a seed for what it will draw."""
        first, second = (int(seed) for seed in source.integers(_MOST_SEED, size=2))
        with drawing_from(first):
            module = self.source.build(self.shape, self.outputs)
        mine = {name: tuple(value.shape) for name, value in _tensors(module).items()}
        learned = {each.name: each.shape for each in self._learned}
        if mine != learned | {each.name: each.shape for each in self._held}:
            raise EngramError(
                f"The network {self.source.name!r} must have the same parameters each time that it "
                "is made."
            )
        return module, second

    def _values(self, module: nn.Module) -> Iterator[tuple[Tensor, _Held]]:
        values = _tensors(module)
        for each in self._held:
            yield values[each.name].detach(), each

    # ---- what kind of network it is --------------------------------------------------------------

    def _observed(self) -> Behaviour:
        """Let two examples go through it in both modes, on the CPU, and see what it does."""
        self.behaviour = Behaviour(True, True, 1, frozenset(), True, "nothing is known of it yet")
        with drawing_from(0):
            inputs = torch.rand(3, *self.shape)
        ones = torch.arange(2)
        flat = torch.cat([each.flattened(_current(each).detach()) for each in self._learned])
        memory = torch.zeros(1, self.buffer_size, dtype=torch.uint8)
        for each, value in zip(self._held, self._initial_held, strict=True):
            each.view(memory[0], torch.float32).copy_(value)

        written = list[bool]()

        def tried(rows: Tensor | slice, training: bool) -> tuple[Tensor, Tensor, bool]:
            """Return logits, the bytes that are left, and whether random numbers were drawn."""
            left, examples = memory.clone(), inputs[rows].clone()
            version = examples._version
            held = [each.view(left[0], torch.float32) for each in self._held]
            with drawing_from(1), torch.no_grad():
                before = _generators()
                logits = self._called(self._leaves(flat[None])[0], held, examples, training)
                drawn = _generators() != before
            # What is written through .data counts as no version, and zeros may be set to zero.
            written.append(examples._version != version or not examples.equal(inputs[rows]))
            return logits, left, drawn

        trained, moved, draws = tried(ones, training=True)
        check_outputs(self.source.name, trained, 2, self.outputs)
        again, _, _ = tried(ones, training=True)
        if not torch.allclose(again, trained, rtol=1e-3, atol=1e-5):
            raise EngramError(
                f"The network {self.source.name!r} gives other outputs when the same examples come "
                "again: what it keeps between passes must be in registered buffers."
            )
        self._check_gradient(flat, memory, inputs[ones])
        others, _, _ = tried(ones * 2, training=True)
        mixes = not torch.allclose(others[0], trained[0], rtol=1e-4, atol=1e-6)
        try:
            single, _, _ = tried(slice(1), training=True)
            least = 1 if single.shape == (1, self.outputs) else 2
        except EngramError:
            least = 2
        tested, left, also = tried(ones, training=False)
        check_outputs(self.source.name, tested, 2, self.outputs)
        moves = frozenset(
            each.name
            for each in self._held
            if not torch.equal(
                each.view(moved[0], torch.float32), each.view(memory[0], torch.float32)
            )
        )
        self._shares = _shares(self._module, moves)
        draws = draws or also
        alone = self._why_alone(draws, mixes, moves)
        changes = not torch.equal(left, memory)
        found = Behaviour(draws, mixes, least, moves, changes, alone, any(written))
        self.behaviour = self.behaviour._replace(writes=found.writes)
        if alone is None:
            found = found._replace(alone=self._vmap_fault(flat, memory, inputs))
        self._known = None
        return found

    def _check_gradient(self, flat: Tensor, memory: Tensor, inputs: Tensor) -> None:
        """Refuse a network that autograd finds no way back through."""
        held = [each.view(memory.clone()[0], torch.float32).data for each in self._held]
        leaves = self._leaves(flat[None])[0]
        with drawing_from(1), torch.enable_grad():
            logits = self._called(leaves, held, inputs, training=True)
            if not logits.requires_grad:
                raise EngramError(
                    f"The network {self.source.name!r} gives outputs that do not depend on any "
                    "parameter, as far as autograd can tell."
                )
            with naming(self.source.name, "trained"):
                torch.autograd.grad(logits.sum(), leaves, allow_unused=True)

    def _why_alone(self, draws: bool, mixes: bool, moves: frozenset[str]) -> str | None:
        if any(isinstance(each, nn.modules.conv._ConvNd) for each in self._module.modules()):
            return "convolutions of several runs in one gain nothing"
        if draws:
            return "every run draws random numbers of its own"
        if mixes or moves:
            return "every run has statistics of its own batches"
        return None

    def _vmap_fault(self, flat: Tensor, memory: Tensor, inputs: Tensor) -> str | None:
        """Return why two runs cannot go through it as one, if they cannot."""
        two = torch.stack([flat, flat * 0.9])
        examples = torch.stack([inputs, inputs.flip(0)])
        held = memory.expand(2, -1).clone()
        try:
            with torch.no_grad():
                together = self._stacked(self.tensors(two), held, examples, training=True)
                views = [each.view(held[0], torch.float32) for each in self._held]
                single = [
                    self._called(self.tensors(row), views, mine, training=True)
                    for row, mine in zip(two, examples, strict=True)
                ]
        except (EngramError, RuntimeError, NotImplementedError) as error:
            return f"torch.func.vmap refuses it: {str(error).splitlines()[0][:200]}"
        same = torch.allclose(together, torch.stack(single), rtol=1e-3, atol=1e-4)
        return None if same else "torch.func.vmap gives other outputs"


def _copied(module: nn.Module) -> nn.Module:
    """Return a copy, since what is made may share its parts with what is made next."""
    try:
        return copy.deepcopy(module)
    except Exception:  # it has something that cannot be copied
        return module


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _owners(module: nn.Module) -> list[tuple[dict[str, Tensor], str, Tensor]]:
    """Return every place in a module that has a parameter or a buffer."""
    return [
        (owner, key, value)  # type: ignore[misc]
        for each in module.modules()
        for owner in (each._parameters, each._buffers)
        for key, value in owner.items()
        if value is not None
    ]


def _owned(value: Tensor, held: _Held) -> Tensor:
    """Return a copy, which no pass changes."""
    return value.detach().clone().view(held.shape)


def _current(each: _Learned) -> Tensor:
    owner, key = each.places[0]
    return owner[key]


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


def _counter(memory: Tensor) -> Tensor:
    """Return a run's seed of draws and its number of passes, [2], as a view of its bytes."""
    return memory[..., :_COUNTER].view(torch.int64)


def _generators() -> tuple[bytes, str, str]:
    """Return the state of all generators that a module may draw from."""
    torchs = torch.default_generator.get_state().numpy().tobytes()
    return torchs, repr(np.random.get_state()), repr(random.getstate())


def _shares(module: nn.Module, moves: frozenset[str]) -> Mapping[str, float] | None:
    """Return the newest batch's share in each running average, 0 in a count; None if unknown."""
    shares = dict[str, float]()
    for name, each in module.named_modules():
        if isinstance(each, _BatchNorm) and each.momentum is not None:
            prefix = f"{name}." if name else ""
            shares |= {f"{prefix}running_{kind}": each.momentum for kind in ("mean", "var")}
            shares[f"{prefix}num_batches_tracked"] = 0.0
    return {name: shares[name] for name in moves} if moves <= shares.keys() else None
