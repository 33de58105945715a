"""What a loss must be, and what the rule sees of it."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.errors import EngramError


def check_loss(loss: Tensor) -> None:
    """Refuse a loss that has no gradient."""
    if not isinstance(loss, Tensor):
        raise EngramError(f"loss must be a tensor, not {type(loss).__name__}.")
    if loss.numel() != 1:
        raise EngramError(
            f"loss must be a single number, not a tensor of shape {list(loss.shape)}; "
            "take its mean or its sum."
        )
    if not loss.requires_grad:
        raise EngramError(
            "loss must require a gradient; compute it from trainable parameters, outside "
            "torch.no_grad() and without detach()."
        )


def compared_value(loss: Tensor, value: Tensor | float | None) -> Tensor:
    """Return what the rule compares, by default the loss itself, in float32 or better."""
    dtype = loss.dtype if loss.dtype in (torch.float32, torch.float64) else torch.float32
    if value is None or value is loss:
        value = loss
    else:
        value = torch.as_tensor(value, dtype=dtype, device=loss.device)
        if value.numel() != 1:
            raise EngramError(
                f"value must be a single number, not a tensor of shape {list(value.shape)}."
            )
    value = value.detach()
    return value if value.dtype == dtype and not value.dim() else value.to(dtype).reshape(())
