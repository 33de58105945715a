"""A batch norm in training and the ReLU behind it in one: on a GPU they are passes over memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from engram.kernels import triton_works

_LEAST_CHANNELS = 64


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
    returned twice, for two readers: what comes back to the two is then added on the way, which
    takes autograd another pass. Neither may be changed in place.
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
        from engram.models import _triton_norms

        if beside is not None:
            beside = beside.contiguous(memory_format=torch.channels_last)
        output, found = _triton_norms.forward(images, weight, bias, beside, *averages, epsilon)
        ctx.save_for_backward(images, output, weight, found)
        ctx.beside = beside is not None
        ctx.set_materialize_grads(False)  # a reader whose gradient nobody asks for has none
        return output, output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        from engram.models import _triton_norms_back

        given = [
            each.contiguous(memory_format=torch.channels_last)
            for each in gradients
            if each is not None
        ]
        if not given:
            return (None,) * 6
        images, output, weight, found = ctx.saved_tensors
        at_images, (at_weight, at_bias), at_beside = _triton_norms_back.backward(
            *(given[0], given[1] if given[1:] else None, images, output, weight, found),
            beside=ctx.beside,
        )
        return at_images, at_weight, at_bias, at_beside, None, None
