"""The device of a run: whether it is there, what it is called, how it multiplies."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from engram.errors import EngramError, shown
from engram.lab.protocol.spec import Spec

_CPU_MODEL = Path("/proc/cpuinfo")
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES = (":4096:8", ":16:8")  # those with which NVIDIA promises the same bits


def check_device(name: str) -> None:
    """Refuse what is neither the CPU nor a GPU of this machine."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError, ValueError):
        raise EngramError(f"device must be cpu, cuda or cuda:N, not {shown(name)}.") from None
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= count:
        raise EngramError(f"device must be one of this machine's, cpu or cuda:N, not {device}.")


def device_name(device: str) -> str:
    """Return the model of a GPU, or "cpu"."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return device


def processor() -> str:
    """Return the model of the CPU where Linux names it, else its architecture."""
    lines = list[str]()
    with suppress(OSError):  # elsewhere there is no such file
        lines = _CPU_MODEL.read_text("utf-8", "replace").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def cpu_facts(device: str) -> dict[str, str]:
    """Return which CPU rounds the numbers of a run, and with which instructions; of a GPU nothing.

    Two CPUs add up in another order, and a run's steps make that show in its last digits.
    """
    if torch.device(device).type != "cpu":
        return {}
    return {"cpu": f"{processor()} ({torch.backends.cpu.get_cpu_capability()})"}


def precision_of(spec: Spec) -> str:
    """Return the name of the precision that a spec's networks compute in."""
    return str(spec.settings.get("precision", "float32"))


@contextmanager
def precision(name: str, *, deterministic: bool = False) -> Iterator[None]:
    """Let convolutions round what they multiply to 10 bits, or (``float32``) keep all of it.

    Matrix products, of which the dot products and mixtures of gradients are made, keep all of it
    unless torch was set otherwise before. The fastest algorithm for each shape is found by trying,
    except where the bits have to be the same each time (``deterministic``); an operation that
    cannot do so raises.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    strict = torch.get_deterministic_debug_mode()
    memory = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory  # type: ignore[attr-defined]
    cudnn.allow_tf32 = name != "float32"
    cudnn.benchmark = not deterministic
    if deterministic:
        cudnn.deterministic = True
        # As use_deterministic_algorithms(True), which would load a compiler besides.
        torch.set_deterministic_debug_mode("error")
        # What is not set yet need not be alike, since nobody reads it; setting it takes time.
        memory.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before
        torch.set_deterministic_debug_mode(strict)
        memory.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def prepare_workspace(device: str) -> None:
    """Let matrix products of a GPU have the same bits each time; it must not have begun yet."""
    if torch.device(device).type != "cuda":
        return
    if _WORKSPACE not in os.environ and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        os.environ[_WORKSPACE] = _WORKSPACES[0]
    if os.environ.get(_WORKSPACE) not in _WORKSPACES:
        raise EngramError(
            f"deterministic needs {_WORKSPACE}={_WORKSPACES[0]} in the environment before the GPU "
            f"is used, not {os.environ.get(_WORKSPACE, 'nothing')!r}."
        )
