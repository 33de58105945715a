"""What a loss must be, and what the rule sees of it."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.errors import EngramError, shown


def check_loss(loss: Tensor) -> None:
    """Refuse a loss that has no gradient."""
    if not isinstance(loss, Tensor):
        raise EngramError(f"loss must be a tensor, not {type(loss).__name__}.")
    if loss.is_nested or loss.layout is not torch.strided:
        kind = "nested" if loss.is_nested else str(loss.layout)
        raise EngramError(f"loss must be a plain tensor of one number, not a {kind} one.")
    if loss.is_complex() or loss.is_meta or loss.is_quantized:
        raise EngramError(f"loss must be a real number, not {loss.dtype} on {loss.device}.")
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
    own = value is None or value is loss
    number = loss if own else _number(value, dtype, loss.device)
    if number.dtype is not dtype or number.dim():
        number = number.to(dtype).reshape(())
    return number.detach()


def _number(value: object, dtype: torch.dtype, device: torch.device) -> Tensor:
    try:
        if isinstance(value, Tensor) and (value.is_complex() or value.is_meta or value.is_nested):
            raise TypeError
        number = torch.as_tensor(value, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise EngramError(f"value must be a single number, not {shown(value)}.") from None
    if number.numel() != 1:
        raise EngramError(
            f"value must be a single number, not a tensor of shape {list(number.shape)}."
        )
    return number
