"""A fully connected layer of R stacked runs: its output, and the two halves of its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.kernels import triton_works
from engram.models._rounding import rounding


def layer(inputs: Tensor, weight: Tensor, bias: Tensor, *, rectify: bool, tf32: bool) -> Tensor:
    """Return x W + b, or its ReLU, for inputs [R, B, n], weights [R, n, m] and biases [R, 1, m].

    With ``tf32`` a GPU rounds what it multiplies to 10 bits, here and below.
    """
    if triton_works(inputs):
        from engram.models import _triton_products

        return _triton_products.layer(inputs, weight, bias, rectify=rectify, tf32=tf32)
    with rounding(tf32=tf32):
        output = torch.baddbmm(bias, inputs, weight)
    return output.relu_() if rectify else output


def before(gradient: Tensor, weight: Tensor, hidden: Tensor, *, tf32: bool) -> Tensor:
    """Return the gradient before a layer whose inputs ``hidden`` came out of a ReLU.

    It is g Wᵀ where they are above 0, and 0 elsewhere, for the gradient g [R, B, m] behind it.
    """
    if triton_works(gradient):
        from engram.models import _triton_products

        return _triton_products.before(gradient, weight, hidden, tf32=tf32)
    with rounding(tf32=tf32):
        product = torch.bmm(gradient, weight.transpose(1, 2))
    masked: Tensor = torch.ops.aten.threshold_backward(product, hidden, 0)
    return masked


def learn(inputs: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor, *, tf32: bool) -> None:
    """Write a layer's gradients, xᵀ g and the sum of g, into ``weight`` and ``bias``.

    They are those of each group of each run's examples: inputs are [R * groups, B, n], and weights
    [R, groups, n, m].
    """
    if triton_works(gradient) and not tf32:  # of rounded numbers torch makes this product faster
        from engram.models import _triton_products

        _triton_products.learn(inputs, gradient, weight, bias)
        return
    if 1 in weight.shape[:2]:  # they are evenly spaced: the products can go there directly
        with rounding(tf32=tf32):
            torch.bmm(inputs.transpose(1, 2), gradient, out=weight.flatten(0, 1))
        torch.sum(gradient, 1, keepdim=True, out=bias.flatten(0, 1))
    else:
        with rounding(tf32=tf32):
            weight.copy_(torch.bmm(inputs.transpose(1, 2), gradient).view_as(weight))
        bias.copy_(gradient.sum(1).view_as(bias))
