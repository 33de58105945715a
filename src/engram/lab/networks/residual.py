"""The layers of a residual network: convolutions without bias, batch norm, the basic block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from engram.kernels import triton_works
from engram.lab.networks.network import Network

Shape = tuple[int, ...]
Twice = tuple[Tensor, Tensor]  # a block's output: for the next one's convolution, for its shortcut

_EPSILON = 1e-3
_MOMENTUM = Network.momentum
_LEAST_CHANNELS = 64


class Pass(NamedTuple):
    """One run's pass: the weights and running averages by name, and the mode.

    In training, batch norm normalises by the mean and the biased variance of its batch, over the
    examples that are ``present`` [B] (None: all of them), and moves its running averages a tenth
    of the way there. The running variance is the unbiased one, as in PyTorch: n / (n − 1) times
    that of the paper's runs, n the values of a channel in the batch. In evaluation it normalises
    by the running averages.
    """

    weights: Mapping[str, Tensor]
    averages: Mapping[str, Tensor]
    training: bool = False
    present: Tensor | None = None

    def convolution(self, name: str, inputs: Tensor, stride: int) -> Tensor:
        """Apply a convolution, padded on both sides so that stride 1 keeps the size."""
        weight = _aligned(self.weights[f"{name}.weight"])
        if not inputs.is_cuda:
            weight = weight.contiguous()  # which a CPU is faster with
        return functional.conv2d(inputs, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(self, name: str, inputs: Tensor) -> Tensor:
        """Apply a batch norm."""
        mean, variance = (self.averages[f"{name}.running_{kind}"] for kind in ("mean", "var"))
        weight, bias = (_aligned(self.weights[f"{name}.{kind}"]) for kind in ("weight", "bias"))
        if self.training and self.present is not None:
            inputs = _normalise_present(inputs, mean, variance, self.present)
            return inputs * weight.view(-1, 1, 1) + bias.view(-1, 1, 1)
        return functional.batch_norm(
            inputs, mean, variance, weight, bias, self.training, _MOMENTUM, _EPSILON
        )

    def rectified_norm(self, name: str, inputs: Tensor, *beside: Tensor | None) -> Twice:
        """Apply a batch norm, add what is beside it, and apply a ReLU; return it twice."""
        added = [each for each in beside if each is not None]
        if len(added) < 2 and self.training and self.present is None and has_kernels(inputs):
            weight, bias = (self.weights[f"{name}.{kind}"] for kind in ("weight", "bias"))
            mean, variance = (self.averages[f"{name}.running_{kind}"] for kind in ("mean", "var"))
            averages = Averages(mean, variance, _MOMENTUM)
            return rectified_norm(
                inputs, weight, bias, added[0] if added else None, averages, _EPSILON
            )
        hidden = self.norm(name, inputs)
        for each in added:
            hidden = hidden.add_(each)
        hidden = hidden.relu_()
        return hidden, hidden

    def block(self, name: str, inputs: Twice, stride: int, lateral: Tensor | None) -> Twice:
        """Apply a basic block; what comes from the side is added before its final ReLU."""
        hidden, shortcut = inputs
        hidden = self.convolution(f"{name}.conv1", hidden, stride)
        hidden, _ = self.rectified_norm(f"{name}.bn1", hidden)
        hidden = self.convolution(f"{name}.conv2", hidden, 1)
        if f"{name}.downsample.0.weight" in self.weights:
            shortcut = self.convolution(f"{name}.downsample.0", shortcut, stride)
        if f"{name}.downsample.1.weight" in self.weights:
            shortcut = self.norm(f"{name}.downsample.1", shortcut)
        return self.rectified_norm(f"{name}.bn2", hidden, shortcut, lateral)


def _normalise_present(inputs: Tensor, mean: Tensor, variance: Tensor, present: Tensor) -> Tensor:
    """Normalise by the examples that are present, and move the running averages in place."""
    mask = present.to(inputs.dtype).view(-1, 1, 1, 1)
    count = (mask.sum() * inputs[0, 0].numel()).clamp(min=1)
    centre = (inputs * mask).sum((0, 2, 3), keepdim=True) / count
    centred = inputs - centre
    spread = (centred.square() * mask).sum((0, 2, 3), keepdim=True) / count
    with torch.no_grad():
        mean.lerp_(centre.flatten(), _MOMENTUM)
        unbiased = spread.flatten() * (count / (count - 1).clamp(min=1))
        variance.lerp_(unbiased, _MOMENTUM)
    return centred * (spread + _EPSILON).rsqrt()


def _aligned(weight: Tensor) -> Tensor:
    """Return a weight that begins at a multiple of 16 bytes, as a GPU's fastest kernels take it.

    The first run's do, but any number of classes may lie between two runs.
    """
    return weight.clone() if weight.is_cuda and weight.data_ptr() % 16 else weight


def leaves(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the same tensors as the leaves of a graph of their own."""
    return {name: tensor.detach().requires_grad_() for name, tensor in named.items()}


def shapes(
    widths: Sequence[int], stem: int, shortcut_norm: bool
) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Return the parameters' and the buffers' shapes by their names in the public checkpoint.

    ``widths`` is what the stem, the four stages and the head read and what the head gives;
    ``stem`` the side of the first kernel.
    """
    parameters, buffers = dict[str, Shape](), dict[str, Shape]()
    for name, shape in _layers(widths, stem, shortcut_norm):
        parameters[f"{name}.weight"] = shape
        if len(shape) < 4:  # convolutions have no bias
            parameters[f"{name}.bias"] = shape[:1]
        if len(shape) == 1:
            buffers[f"{name}.running_mean"] = buffers[f"{name}.running_var"] = shape
    return parameters, buffers


def _layers(widths: Sequence[int], stem: int, shortcut_norm: bool) -> Iterator[tuple[str, Shape]]:
    """Yield each layer's name and its weight's shape, which is [channels] for a norm."""
    colours, *stages, features, classes = widths
    yield "conv1", (stages[0], colours, stem, stem)
    yield "bn1", (stages[0],)
    for stage, (before, width) in enumerate(pairwise((*stages, features)), start=1):
        for block, inputs in enumerate((before, width)):
            name = f"layer{stage}.{block}"
            yield f"{name}.conv1", (width, inputs, 3, 3)
            yield f"{name}.bn1", (width,)
            yield f"{name}.conv2", (width, width, 3, 3)
            yield f"{name}.bn2", (width,)
            if inputs != width:
                yield f"{name}.downsample.0", (width, inputs, 1, 1)
                if shortcut_norm:
                    yield f"{name}.downsample.1", (width,)
    yield "fc", (classes, features)


def has_kernels(images: Tensor) -> bool:
    """Whether `rectified_norm` can take images: of float32 or bfloat16, channels lying together.

    A single value of a channel has no variance; torch knows what to say of that. Few channels
    leave part of a tile empty, and torch is faster with them.
    """
    lies_well = images.is_contiguous(memory_format=torch.channels_last)
    if not lies_well or not _LEAST_CHANNELS <= images.shape[1] < images.numel():
        return False
    return triton_works(images) or triton_works(images, torch.bfloat16)


class Averages(NamedTuple):
    """The running averages of a norm, which a pass moves by ``momentum`` of the way."""

    mean: Tensor
    variance: Tensor
    momentum: float


def rectified_norm(
    images: Tensor,
    weight: Tensor,
    bias: Tensor,
    beside: Tensor | None,
    averages: Averages,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Return relu(norm(x) + beside), where norm is `functional.batch_norm` in training.

    So x is normalised by its own mean and variance, and the running averages are moved. It is
    returned twice, for two readers: the two gradients are then added in backward, which takes
    autograd another pass. Neither may be changed in place.
    """
    given = images, weight, bias, beside, averages, epsilon
    result: tuple[Tensor, Tensor] = _RectifiedNorm.apply(*given)  # type: ignore[no-untyped-call]
    return result


class _RectifiedNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        images: Tensor,
        weight: Tensor,
        bias: Tensor,
        beside: Tensor | None,
        averages: Averages,
        epsilon: float,
    ) -> tuple[Tensor, Tensor]:
        from engram.kernels import layers

        if beside is not None:
            beside = beside.contiguous(memory_format=torch.channels_last)
        output, found = layers.norm_forward(images, weight, bias, beside, *averages, epsilon)
        ctx.save_for_backward(images, output, weight, found)
        ctx.beside = beside is not None
        ctx.set_materialize_grads(False)  # a reader whose gradient nobody asks for has none
        return output, output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        from engram.kernels import layers

        given = [
            each.contiguous(memory_format=torch.channels_last)
            for each in gradients
            if each is not None
        ]
        if not given:
            return (None,) * 6
        images, output, weight, found = ctx.saved_tensors
        at_images, (at_weight, at_bias), at_beside = layers.norm_backward(
            *(given[0], given[1] if given[1:] else None, images, output, weight, found),
            beside=ctx.beside,
        )
        return at_images, at_weight, at_bias, at_beside, None, None
