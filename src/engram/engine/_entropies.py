"""Cross-entropies and their gradients as one kernel of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import torch
from torch import Tensor

from engram.streams import Batch

Kernel = Callable[..., tuple[Tensor, Tensor]]

SOURCE = """
template <typename T>
void entropies(T log_probability, T label, T number, T share, T& loss, T& gradient) {
  const bool is_label = label == number;
  loss = is_label ? -log_probability * share : T(0);
  gradient = (exp(log_probability) - (is_label ? T(1) : T(0))) * share;
}
"""


def entropies_on_device(log_probabilities: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return losses, whose sum over a part is its mean, and gradients, both [R, B, classes].

    An example has its loss at its label, and 0 elsewhere. The first call compiles the kernel; it
    must not be one that is captured in a CUDA graph.
    """
    numbers = _numbers(log_probabilities.shape[-1], log_probabilities.device)
    told = log_probabilities, batch.labels.unsqueeze(-1), numbers
    if batch.weights is not None:
        return _kernel()(*told, batch.weights.unsqueeze(-1))
    return _kernel_for_shares()(*told, share=batch.groups / batch.labels.shape[1])


@cache
def _kernel() -> Kernel:
    return cast(Kernel, torch.cuda.jiterator._create_multi_output_jit_fn(SOURCE, 2))


@cache
def _kernel_for_shares() -> Kernel:
    """Return the kernel for examples that all have the same share, a number."""
    return cast(Kernel, torch.cuda.jiterator._create_multi_output_jit_fn(SOURCE, 2, share=1.0))


@cache
def _numbers(classes: int, device: torch.device) -> Tensor:
    """Return the numbers of the outputs, which are the same in every step."""
    return torch.arange(classes, device=device)
