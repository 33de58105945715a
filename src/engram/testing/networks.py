"""The conformance kit for networks: what the laboratory and a `Learner` build on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from engram.errors import EngramError
from engram.lab.networks import NetworkSource, network_source
from engram.lab.networks.registry import drawing_from
from engram.lab.settings import Scalar
from engram.testing.assertions import require

_BATCHES = (1, 2, 5)


def check_network(
    network: str | Callable[..., nn.Module],
    shape: tuple[int, ...],
    outputs: int,
    **arguments: str | Scalar,
) -> list[str]:
    """Check a network for examples of a shape and so many outputs; return the checks done.

    It is what `engram run --network` takes: a name, ``FILE.py:name``, or what makes it, called
    with the shape, the outputs and the ``arguments``. A promise that is not kept raises an
    AssertionError that says which one.

    >>> check_network("mlp", (8,), 3)
    ['made', 'outputs', 'seeded', 'alone', 'unmoved', 'learned', 'saved', 'copied']
    """
    source = network_source(network, arguments)
    checks: dict[str, Callable[[NetworkSource, tuple[int, ...], int], None]] = {
        "made": _made,
        "outputs": _outputs,
        "seeded": _seeded,
        "alone": _alone,
        "unmoved": _unmoved,
        "learned": _learned,
        "saved": _saved,
        "copied": _copied,
    }
    for check in checks.values():
        try:
            check(source, tuple(shape), outputs)
        except AssertionError as broken:
            raise AssertionError(f"{source.short_name} {broken}") from broken
    return list(checks)


def _build(source: NetworkSource, shape: tuple[int, ...], outputs: int, seed: int = 0) -> nn.Module:
    with drawing_from(seed):
        return source.build(shape, outputs)


def _inputs(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(count))


@contextmanager
def _predicting(module: nn.Module) -> Iterator[None]:
    module.eval()
    with torch.no_grad():
        yield


def _made(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    try:
        source.check(shape, outputs)
    except EngramError as error:
        raise AssertionError(f"is refused: {error}") from error


def _outputs(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    module = _build(source, shape, outputs)
    with _predicting(module):
        for count in _BATCHES:
            found = tuple(module(_inputs(count, shape)).shape)
            require(
                found == (count, outputs),
                f"gives {list(found)} for {count} examples, not {[count, outputs]}.",
            )


def _seeded(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    one, other, third = (_build(source, shape, outputs, seed).state_dict() for seed in (0, 0, 1))
    require(
        one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one),
        "begins with other parameters when it is made again with the same seed.",
    )
    require(
        any(not torch.equal(one[name], third[name]) for name in one),
        "begins with the same parameters whatever the seed.",
    )


def _alone(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    module = _build(source, shape, outputs).double()
    inputs = _inputs(5, shape).double()
    with _predicting(module):
        together = module(inputs)
        apart = torch.cat([module(inputs[place : place + 1]) for place in range(5)])
    require(
        torch.allclose(together, apart, rtol=1e-6, atol=1e-8),
        "predicts an example otherwise beside others than alone, in eval mode.",
    )


def _unmoved(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    module = _build(source, shape, outputs)
    before = copy.deepcopy(module.state_dict())
    with _predicting(module):
        first, second = module(_inputs(5, shape)), module(_inputs(5, shape))
    require(torch.equal(first, second), "predicts otherwise when it is asked again.")
    after = module.state_dict()
    require(
        all(torch.equal(before[name], after[name]) for name in before),
        "changes its state when it predicts.",
    )


def _learned(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    module = _build(source, shape, outputs)
    module.train()
    labels = torch.arange(4) % outputs
    with torch.enable_grad():
        loss = nn.functional.cross_entropy(module(_inputs(4, shape)), labels)
        torch.autograd.backward(loss)
    for name, each in module.named_parameters():
        if each.requires_grad:
            require(each.grad is not None, f"does not use its parameter {name}.")
            assert each.grad is not None
            require(
                bool(each.grad.isfinite().all()), f"has a gradient of {name} that is not finite."
            )


def _saved(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    module, other = (_build(source, shape, outputs, seed) for seed in (0, 1))
    module.train()
    with torch.no_grad():
        module(_inputs(4, shape))  # running averages, if it has any, are part of its state
    other.load_state_dict(module.state_dict())
    with _predicting(module), _predicting(other):
        require(
            torch.equal(module(_inputs(5, shape)), other(_inputs(5, shape))),
            "predicts otherwise when its state_dict is loaded into another one.",
        )


def _copied(source: NetworkSource, shape: tuple[int, ...], outputs: int) -> None:
    module = _build(source, shape, outputs)
    other = copy.deepcopy(module)
    with torch.no_grad():
        for each in module.parameters():
            each.add_(1)
    with _predicting(other), _predicting(fresh := _build(source, shape, outputs)):
        require(
            torch.equal(other(_inputs(5, shape)), fresh(_inputs(5, shape))),
            "shares what it learns with a copy of it.",
        )
