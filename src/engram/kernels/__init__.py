"""Kernels for GPUs, written in Triton, and whether they can be had.

Each is a faster version of something that is written with torch where it is used. Triton comes with
torch for GPUs: no other module of this package is imported before `triton_works` has said yes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Thread

import torch
from torch import Tensor

__all__ = ["starting", "takes_kernels", "triton_works"]


def takes_kernels(tensor: Tensor) -> bool:
    """Whether a tensor is a plain one of a GPU: no subclass, none of torch.func's, not compiled."""
    if not tensor.is_cuda or type(tensor) is not Tensor or torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def triton_works(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Say whether kernels of Triton for a dtype can take a tensor: of it, and on a GPU that can.

    The first call for a GPU tries it; it must not be one that is captured in a CUDA graph.
    """
    return takes_kernels(tensor) and tensor.dtype == dtype and _works(tensor.device)


@contextmanager
def starting(device: str) -> Iterator[None]:
    """Let a GPU be started, and tried, beside what is done in here, which asks for no kernel.

    That takes a second, much of it outside of Python.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    beside = Thread(target=_start, args=(device,))
    beside.start()
    try:
        yield
    finally:
        beside.join()


def _start(device: str) -> None:
    with suppress(Exception):  # whoever needs the GPU has the error then
        triton_works(torch.ones(1, device=device))


@cache
def _works(device: torch.device) -> bool:
    """Try it; Triton may be missing, or the C compiler that it needs."""
    with suppress(Exception):
        _start_autograd(device)
    try:
        from engram.kernels import trial

        trial.multiply(torch.ones(2, trial.SIDE, trial.SIDE, device=device))
    except Exception:  # whatever it is, there is a way without
        return False
    return True


def _start_autograd(device: torch.device) -> None:
    """Let the thread of autograd's backward passes on a GPU launch its first kernel.

    If its first one is a product of matrices, cuBLAS warns.
    """
    with torch.inference_mode(False), torch.enable_grad():
        one = torch.ones(1, device=device, requires_grad=True)
        torch.autograd.grad(one * one, one)
