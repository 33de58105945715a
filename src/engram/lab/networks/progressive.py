"""Networks that grow by a column for each task: the columns of an MLP, and of a ResNet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engram.lab.networks.gpu import Branches, rounding
from engram.lab.networks.network import SPREAD, Layout, Network, draw_normal, rows_at
from engram.lab.networks.residual import Pass, leaves

if TYPE_CHECKING:  # which make these columns
    from engram.lab.networks.mlp import MLP
    from engram.lab.networks.resnet import ResNet

Layer = tuple[Tensor, Tensor]  # weight and bias

_BAND = 4  # frozen columns in one product: fewer make many products, more make them mostly zeros
_ROOM = 150_000_000  # bytes on a CPU, where many runs may go side by side
_TEST_ROWS = 2_000  # an MLP's inputs predicted at once: the states of all columns take much memory
_TEST_IMAGES = 250  # a ResNet's images predicted at once, or fewer:
_TEST_NUMBERS = 2**29  # the states of all columns for these, which take much memory


class Progressive(ABC):
    """Columns of one network, each of which reads all columns before it; only the last one learns.

    A column is a flat vector of parameters for each run, and its buffers. What the last column
    does in training, the frozen ones do in evaluation: they normalise by the averages that their
    own task left. The first column belongs to the caller and is updated in place.
    """

    network: Network

    def __init__(self, network: Network, first: Tensor) -> None:
        self.network = network
        self.columns = [first]  # [R, d] of each
        self.buffers = [network.initial_buffers(first)]  # [R, b] of each

    @property
    def size(self) -> int:
        """The number of parameters of one run, over all columns."""
        return sum(column.shape[1] for column in self.columns)

    def grow(self, column: Tensor) -> None:
        """Freeze the columns so far and learn ``column`` from here on, in place."""
        self.columns.append(column)
        self.buffers.append(self.network.initial_buffers(column))

    def load(self, columns: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        """Become a network of these columns."""
        self.columns[0].copy_(columns[0])
        del self.columns[1:], self.buffers[1:]
        for column in columns[1:]:
            self.grow(column.to(self.columns[0], copy=True))
        for held, saved in zip(self.buffers, buffers, strict=True):
            held.copy_(saved)

    @abstractmethod
    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's next column."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the last column's logits [R, B, classes] and a tape, from inputs [R, B, ...]."""

    @abstractmethod
    def descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        """Take a plain step with the last column, given the gradient at its logits."""

    @abstractmethod
    def predict(self, inputs: Tensor, places: Tensor | None, column: int) -> Tensor:
        """Return a column's logits [R, B, classes] for inputs [B, ...] that all runs share.

        They are the same, bit for bit, whatever has been learned since. ``places`` says where
        the inputs' columns belong (see TestBatch).
        """


class ProgressiveMLP(Progressive):
    """Columns of one MLP, each of which reads all columns before it.

    Layer i of column t, where h_c is column c's input to layer i (h_c = x for i = 0):

        h_t W + b + Σ_{c<t} (h_c U_c + u_c),    then ReLU, except at the logits.

    Column t has t + 1 times the parameters of the MLP, [R, (t + 1) d], layer after layer: U_0 to
    U_{t−1} and W one below the other, then u_0 to u_{t−1} and b.

    >>> from engram.lab.networks import MLP
    >>> network = MLP((4, 3, 2))
    >>> columns = ProgressiveMLP(network, torch.zeros(1, network.size))
    >>> columns.grow(torch.zeros(1, 2 * network.size))
    >>> network.size, columns.size
    (23, 69)
    """

    network: MLP

    def __init__(self, network: MLP, first: Tensor) -> None:
        super().__init__(network, first)
        self._bands = Bands(network.sizes)
        # Of what was predicted with the last column: while it learns, the others stay the same.
        self._kept = KeptStates()

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's next column; laterals are drawn as the MLP's own weights are."""
        count = len(self.columns) + 1
        drawn = torch.stack([self.network.initialise(source) for _ in range(count)])
        return torch.cat([part.flatten() for layer in self.network.layers(drawn) for part in layer])

    def grow(self, column: Tensor) -> None:
        """Freeze the columns so far and learn ``column`` from here on, in place."""
        self._kept.forget()
        self._bands.freeze(len(self.columns) - 1, self._summed(self.columns[-1]))
        super().grow(column)

    def load(self, columns: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        """Become a network of these columns."""
        self._kept.forget()
        self._bands.clear()
        super().load(columns, buffers)

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the last column's logits and every layer's input, the columns' side by side."""
        with rounding(tf32=self.network.tf32):
            return self._run(inputs, len(self.columns) - 1, None)

    def descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        """Take a plain step with the last column, given the gradient at its logits."""
        with rounding(tf32=self.network.tf32):
            self._descend(tape, gradient, learning_rate)

    def _descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        layers = list(self._layers(self.columns[-1]))
        for layer in reversed(range(len(layers))):
            (weight, bias), inputs, at_output = layers[layer], tape[layer], gradient
            bias.sub_(at_output.sum(1, keepdim=True).unsqueeze(1), alpha=learning_rate)
            if layer:
                own = inputs[..., -weight.shape[2] :]
                gradient = torch.bmm(at_output, weight[:, -1].transpose(1, 2))
                gradient = torch.ops.aten.threshold_backward(gradient, own, 0)
                stacked = weight.flatten(1, 2)
                stacked.baddbmm_(inputs.transpose(1, 2), at_output, alpha=-learning_rate)
            else:  # all columns read x: W and every U have the same gradient
                shared = torch.bmm(inputs.transpose(1, 2), at_output)
                weight.sub_(shared.unsqueeze(1), alpha=learning_rate)

    def predict(self, inputs: Tensor, places: Tensor | None, column: int) -> Tensor:
        """Return a column's logits for inputs [B, features] that all runs share.

        The products depend on ``column`` alone, not on what has been learned since: so do, bit
        for bit, the logits. ``places`` says where the inputs' columns belong (see TestBatch).
        """
        with rounding(tf32=self.network.tf32):
            parts = torch.split(inputs, _TEST_ROWS)
            return torch.cat([self._logits(part, column, places) for part in parts], 1)

    def _logits(self, inputs: Tensor, column: int, places: Tensor | None) -> Tensor:
        last = 0 < column == len(self.columns) - 1  # before the second there is nothing to save
        states = self._kept.find(inputs, places) if last else None
        spread = inputs.expand(len(self.columns[0]), -1, -1)
        if states is not None:
            return self._run_again(spread, states, places)
        logits, tape = self._run(spread, column, places)
        if last:
            self._kept.keep(inputs, places, tape[1:])
        return logits

    def _run(
        self, inputs: Tensor, column: int, places: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        hidden, tape = inputs, list[Tensor]()
        for layer, own in enumerate(self._summed(self.columns[column])):
            tape.append(hidden)
            products = (*self._bands.products(layer, column), own)
            parts = [_product(hidden, *each, None if layer else places) for each in products]
            hidden = torch.cat(parts, -1)
            if layer < len(self.network.sizes) - 2:
                hidden = hidden.relu_()
        return hidden, tape

    def _run_again(self, inputs: Tensor, states: list[Tensor], places: Tensor | None) -> Tensor:
        """Return the last column's logits, given the states that an earlier `_run` has left.

        The frozen columns' part of them stays as it is, the last one's is written anew. All
        products are such as `_run` makes: so are, bit for bit, the logits.
        """
        tape = [inputs, *states]
        for layer, own in enumerate(self._summed(self.columns[-1])):
            product = _product(tape[layer], *own, None if layer else places)
            if layer < len(states):
                states[layer][..., -product.shape[-1] :] = product.relu_()
        return product

    def _layers(self, column: Tensor) -> Iterator[Layer]:
        """Yield weights [R, t + 1, inputs, outputs] and biases [R, t + 1, 1, outputs] as views."""
        runs, count, start = column.shape[0], column.shape[1] // self.network.size, 0
        for inputs, outputs in pairwise(self.network.sizes):
            middle = start + count * inputs * outputs
            end = middle + count * outputs
            yield (
                column[:, start:middle].view(runs, count, inputs, outputs),
                column[:, middle:end].view(runs, count, 1, outputs),
            )
            start = end

    def _summed(self, column: Tensor) -> Iterator[Layer]:
        """Yield each layer of a column as one product of its inputs side by side."""
        for layer, (weight, bias) in enumerate(self._layers(column)):
            yield weight.flatten(1, 2) if layer else weight.sum(1), bias.sum(1)


def _product(inputs: Tensor, weight: Tensor, bias: Tensor, places: Tensor | None) -> Tensor:
    """Return a layer of the columns that a weight has rows for, which are the first ones."""
    if places is not None:
        weight = rows_at(weight, places)
    return torch.baddbmm(bias, inputs[..., : weight.shape[1]], weight)


class Bands:
    """For each hidden layer: the frozen columns, _BAND of them side by side in a matrix.

    Its rows are the inputs of all columns so far, with zeros where a column does not read.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._layers: list[list[Layer]] = [[] for _ in sizes[2:]]

    def clear(self) -> None:
        """Hold no column."""
        for bands in self._layers:
            bands.clear()

    def freeze(self, index: int, layers: Iterable[Layer]) -> None:
        """Write the hidden layers of column ``index``, which comes next, into the bands."""
        place = index % _BAND
        for layer, (bands, (weight, bias)) in enumerate(zip(self._layers, layers, strict=False)):
            (runs, _, outputs), inputs = weight.shape, self._sizes[layer]
            if place == 0:
                rows, width = inputs * (index + _BAND if layer else 1), outputs * _BAND
                bands.append((weight.new_zeros(runs, rows, width), bias.new_zeros(runs, 1, width)))
            part = slice(place * outputs, (place + 1) * outputs)
            bands[-1][0][:, : weight.shape[1], part] = weight
            bands[-1][1][..., part] = bias

    def products(self, layer: int, count: int) -> Iterator[Layer]:
        """Yield a layer's products for the first ``count`` columns, a band each.

        There are none at the logits, which nobody reads of a frozen column.
        """
        if layer == len(self._layers):
            return
        inputs, outputs = self._sizes[layer : layer + 2]
        for start, (weight, bias) in zip(range(0, count, _BAND), self._layers[layer], strict=False):
            end = min(start + _BAND, count)
            rows, width = inputs * (end if layer else 1), outputs * (end - start)
            yield weight[:, :rows, :width], bias[..., :width]


class _Kept(NamedTuple):
    inputs: Tensor
    places: Tensor | None
    states: list[Tensor]

    @property
    def nbytes(self) -> int:
        places = () if self.places is None else (self.places,)
        return sum(tensor.nbytes for tensor in (self.inputs, *places, *self.states))


class KeptStates:
    """What the layers of a network read, for some inputs, while there is room for it.

    Inputs are known again by their values, of which there are copies here: whatever becomes of
    the caller's, states are found for the inputs that they are of. Who comes first is kept, for
    inputs come again in turns: if the last pushed out the first, none would ever be found.
    """

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(kept.nbytes for kept in self._kept)

    def forget(self) -> None:
        """Keep nothing of what there was."""
        self._kept.clear()

    def find(self, inputs: Tensor, places: Tensor | None) -> list[Tensor] | None:
        """Return the states of these very inputs, at these places, or None."""
        for kept in self._kept:
            if _same(kept.places, places) and _same(kept.inputs, inputs):
                return kept.states
        return None

    def keep(self, inputs: Tensor, places: Tensor | None, states: list[Tensor]) -> None:
        """Keep the states, as they are, and copies of what they are of, if there is room."""
        new, held = _Kept(inputs, places, states), self.nbytes
        if held + new.nbytes <= _room(inputs.device, held):
            copied = None if places is None else places.clone()
            self._kept.append(new._replace(inputs=inputs.clone(), places=copied))


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and torch.equal(one, other)


def _room(device: torch.device, held: int) -> int:
    """Return how much may be held in all: on a GPU a quarter of what is left, or held already."""
    if device.type != "cuda":
        return _ROOM
    free, _ = torch.cuda.mem_get_info(device)
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (free + idle + held) // 4


class ProgressiveResNet(Progressive):
    """Columns of one ResNet, each of which reads all columns before it.

    Where h_c is what stage i of column c reads (the stem, i = 0, reads the image), column t adds

        Σ_{c<t} (U_c * h_c + u_c)

    to what its own stage i gives, before the stage's last ReLU: * is a 1 × 1 convolution with
    the stage's stride. The logits take in the earlier columns' pooled features likewise. Every
    column has a whole head. Column t has the parameters of the network and then, for each stage
    and for the head, U_0 to U_{t−1} side by side and u_0 to u_{t−1}.

    >>> from engram.lab.networks import ResNet
    >>> network = ResNet(100)
    >>> columns = network.progressive(torch.zeros(1, network.size))
    >>> columns.initialise(np.random.default_rng(0)).numel() - network.size
    33680
    """

    network: ResNet

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's next column: the network's own part as ever, the laterals as an MLP's."""
        layout = self._layout(len(self.columns))
        column = torch.full((layout.size,), SPREAD)
        column[: self.network.size] = self.network.initialise(source)
        for name, view in layout.views(column).items():
            if name.startswith("lateral") and name.endswith("weight"):
                draw_normal(source, view)
        return column

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits, and a tape of them and of the parameters they come from."""
        tape, logits, branches = list[Tensor](), list[Tensor](), Branches(inputs.device)
        with torch.enable_grad():
            for run, images in enumerate(inputs):
                frozen = self._pass(run, len(self.columns) - 1)
                learned = frozen._replace(weights=leaves(frozen.weights), training=True)
                with branches.branch():
                    logits.append(self._logits(run, images, len(self.columns) - 1, learned))
                tape += learned.weights.values()
            branches.join()
            stacked = torch.stack(logits)
        return stacked.detach(), [stacked, *tape]

    def descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        """Take a plain step with the last column, along the gradient that autograd finds."""
        layout, last = self._layout(len(self.columns) - 1), self.columns[-1]
        places = [view for column in last for view in layout.views(column).values()]
        gradients = torch.autograd.grad(tape[0], tape[1:], gradient)
        torch._foreach_add_(places, gradients, alpha=-learning_rate)

    def predict(self, inputs: Tensor, places: Tensor | None, column: int) -> Tensor:
        """Return a column's logits for images [B, 3, height, width] that all runs share."""
        images = self.network.images(inputs, places, len(self.columns[0]))
        rows = min(_TEST_IMAGES, max(1, _TEST_NUMBERS // (self._states(images) * (column + 1))))
        logits = [
            torch.cat(
                [
                    self._logits(run, part, column, self._pass(run, column))
                    for part in torch.split(mine, rows)
                ]
            )
            for run, mine in enumerate(images)
        ]
        return torch.stack(logits)

    def _states(self, images: Tensor) -> int:
        """Return how many numbers the stages of one column read for one image."""
        area, numbers = images.shape[-2] * images.shape[-1], 0
        for width, stride in zip(self.network.widths, self.network.strides, strict=False):
            numbers += width * area
            area //= stride**2
        return numbers

    def _layout(self, earlier: int) -> Layout:
        """Return where everything is in a column that reads ``earlier`` others."""
        laterals = dict[str, tuple[int, ...]]()
        for stage, (inputs, outputs) in enumerate(pairwise(self.network.widths)):
            laterals[f"lateral{stage}.weight"] = (outputs, earlier * inputs)
            laterals[f"lateral{stage}.bias"] = (earlier, outputs)
        return Layout(self.network.layout.shapes | (laterals if earlier else {}))

    def _pass(self, run: int, column: int) -> Pass:
        """Return one run's pass through a column in evaluation."""
        weights = self._layout(column).views(self.columns[column][run])
        return Pass(weights, self.network.named_buffers(self.buffers[column][run]))

    def _logits(self, run: int, images: Tensor, column: int, own: Pass) -> Tensor:
        """Go through the columns before one, and then through it."""
        earlier = list[list[Tensor]]()  # of each column: what its stages and its head read
        for before in range(column):
            earlier.append(self._trace(self._pass(run, before), images, earlier))
        return self._trace(own, images, earlier)[-1]

    def _trace(self, one: Pass, images: Tensor, earlier: list[list[Tensor]]) -> list[Tensor]:
        lateral = partial(self._lateral, one, earlier) if earlier else None
        return self.network.trace(one, images, lateral)

    def _lateral(self, one: Pass, earlier: list[list[Tensor]], stage: int) -> Tensor:
        """Return Σ (U_c * h_c + u_c) over the earlier columns: one product of all side by side."""
        weight, biases = one.weights[f"lateral{stage}.weight"], one.weights[f"lateral{stage}.bias"]
        states = torch.cat([states[stage] for states in earlier], 1)
        if states.dim() == 2:
            return functional.linear(states, weight, biases.sum(0))
        kernel = weight[..., None, None]
        return functional.conv2d(states, kernel, biases.sum(0), stride=self.network.strides[stage])
