"""Whether two states are the same, whether one can be saved, and whether anything is read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_READS = {
    _aten._local_scalar_dense,
    _aten.equal,
    _aten.allclose,
    _aten.nonzero,
    _aten.masked_select,
    _aten._unique2,
    _aten.unique_dim,
    _aten.unique_consecutive,
}
_COPIES = {"cpu", "numpy", "tolist", "__array__"}


def require(condition: bool, sentence: str) -> None:
    """Raise an AssertionError unless the condition holds (``assert`` can be switched off)."""
    if not condition:
        raise AssertionError(sentence)


def close(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Whether all are the same up to rounding, though some of it may be in float32."""
    return all(
        torch.allclose(one, other, rtol=1e-3, atol=1e-4)
        for one, other in zip(ours, theirs, strict=True)
    )


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401 (a nested structure)
    """Whether two states are the same to the last bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


def can_be_saved(state: Any) -> bool:  # noqa: ANN401
    """Whether a state is made of tensors, arrays and what JSON can hold."""
    if isinstance(state, dict):
        return all(isinstance(key, str) and can_be_saved(value) for key, value in state.items())
    if isinstance(state, list | tuple):
        return all(map(can_be_saved, state))
    return isinstance(state, Tensor | np.ndarray | int | float | str | None)


@contextmanager
def no_reads(device: str) -> Iterator[None]:
    """Raise an AssertionError where a value, or a shape that hangs on values, goes to the host."""
    if torch.device(device).type != "cuda":
        with _RefuseCopies(), _RefuseReads():  # type: ignore[no-untyped-call]
            yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchroniz" in str(error):
            _refuse("a synchronising CUDA call")
        raise
    finally:
        torch.cuda.set_sync_debug_mode(before)


class _RefuseCopies(TorchFunctionMode):
    """Sees the calls that read the memory of a CPU tensor without an operator."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        name = getattr(function, "__name__", "")
        if name in _COPIES or (name == "to" and "cpu" in map(str, arguments[1:2])):
            _refuse(f".{name}()")
        return function(*arguments, **(options or {}))


class _RefuseReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operators that end in a Python number or a shape."""

    def __torch_dispatch__(
        self,
        operator: Any,  # noqa: ANN401
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        if operator.overloadpacket in _READS:
            _refuse(str(operator.overloadpacket))
        if operator.overloadpacket is _aten.index and _masked(arguments[1]):
            _refuse("indexing by a mask")
        return operator(*arguments, **(options or {}))


def _masked(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)


def _refuse(what: str) -> NoReturn:
    raise AssertionError(
        f"says that it is capturable, and a step of it reads from the device: {what}."
    )
