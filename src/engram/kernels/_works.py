"""Whether kernels can be written in Triton."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def triton_works(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Say whether kernels of Triton for a dtype can take a tensor: of it, and on a GPU that can.

    The first call for a GPU tries it; it must not be one that is captured in a CUDA graph.
    """
    return tensor.is_cuda and tensor.dtype == dtype and _works(tensor.device)


@cache
def _works(device: torch.device) -> bool:
    """Try it; Triton may be missing, or the C compiler that it needs."""
    try:
        from engram.kernels import _triton_trial

        _triton_trial.double(torch.ones(1, device=device))
    except Exception:  # whatever it is, there is a way without
        return False
    return True
