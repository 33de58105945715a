"""Nothing is read back to the host: how to notice that something is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

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
