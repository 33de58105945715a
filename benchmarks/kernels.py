"""What each of the Triton kernels gains, beside torch's own operations and beside torch.compile.

Every variant of a step is brought to the last of 17 tasks and captured; then the variants of a
workload take turns, block by block, by the GPU's own clock. A variant does without one family of
kernels: with torch's operations in its place, or with these compiled.

    python benchmarks/kernels.py [--json PATH] [WORKLOAD ...]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional

from engram.app import report
from engram.lab.bench import device_name, sessions
from engram.lab.data import ImageSet
from engram.lab.engine import rows
from engram.lab.networks import mlp, residual
from engram.lab.protocol import BenchmarkSession
from engram.rules import gem, pair

BLOCKS, WARM_UP, EXAMPLES = 9, 11, 12_000
Change = tuple[Any, str, Any]  # whose attribute is replaced, and by what
Session = AbstractContextManager[BenchmarkSession]
AS_IT_IS = "as it is"


def without(*_: object, **__: object) -> bool:
    """Say that there is no kernel."""
    return False


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as torch.compile makes it for the shapes that come."""
    return torch.compile(function, dynamic=False)


def families() -> Mapping[str, Mapping[str, tuple[Change, ...]]]:
    """Return what is replaced to do without a family of kernels, in either way."""
    products = tuple((mlp, name, compiled(getattr(mlp, name))) for name in _PRODUCTS)
    along = tuple((rows, name, compiled(getattr(rows, name))) for name in ("gram", "descend_along"))
    entropy = (compiled(rows.cross_entropy),)  # the objective that passes have by default
    pairs, many = (rows, "_have_kernels", _kernels_beyond(2)), (rows, "_MOST_ROWS", 2)
    return {
        "products": _ways((mlp, "triton_works", without), *products),
        "losses": _ways(
            (rows, "_MOST_CLASSES", 0),
            *((each, "__defaults__", entropy) for each in (rows.Rows._pass, rows.Rows.gradients)),
        ),
        "rows": _ways(pairs, *along),
        "many rows": _ways(many, *along),
        "norms": _ways(
            (residual, "has_kernels", without),
            (residual.Pass, "rectified_norm", _compiled_norm),
        ),
        "quadratic programs": _ways(
            (gem, "triton_works", without),
            (gem, "_pivoted", compiled(gem._pivoted)),
        ),
        "rule": _ways(
            (pair, "triton_works", without),
            (pair.PairRule, "_weigh_and_mark", compiled(pair.PairRule._weigh_and_mark)),
        ),
    }


_PRODUCTS = ("layer", "grad_input", "grad_weight")


def _ways(plain: Change, *as_compiled: Change) -> Mapping[str, tuple[Change, ...]]:
    return {"torch": (plain,), "torch.compile": (plain, *as_compiled)}


def _kernels_beyond(count: int) -> Callable[..., bool]:
    usual = rows._have_kernels

    def have(first: Tensor, *others: Tensor) -> bool:
        return first.shape[1] > count and usual(first, *others)

    return have


@cache
def _norm() -> Callable[..., Tensor]:
    def norm(images: Tensor, averages: tuple[Tensor, Tensor], *given: Tensor | None) -> Tensor:
        weight, bias, beside = given
        hidden = functional.batch_norm(
            images, *averages, weight, bias, True, residual._MOMENTUM, residual._EPSILON
        )
        return (hidden if beside is None else hidden + beside).relu()

    return compiled(norm)


_usual_norm = residual.Pass.rectified_norm


def _compiled_norm(
    self: residual.Pass, name: str, inputs: Tensor, *beside: Tensor | None
) -> tuple[Tensor, Tensor]:
    added = [each for each in beside if each is not None]
    if not self.training or self.present is not None or len(added) > 1:
        return _usual_norm(self, name, inputs, *beside)
    averages = tuple(self.averages[f"{name}.running_{kind}"] for kind in ("mean", "var"))
    weights = (self.weights[f"{name}.{kind}"] for kind in ("weight", "bias"))
    hidden = _norm()(inputs, averages, *weights, added[0] if added else None)
    return hidden, hidden


_pictures: dict[str, ImageSet] = {}  # drawn once for the variants of a workload


def _on_noise(kind: sessions.Noise, precision: str, runs: int) -> Session:
    if kind.benchmark not in _pictures:
        _pictures.clear()
        _pictures[kind.benchmark] = sessions.pictures(kind)
    images = _pictures[kind.benchmark]
    return sessions.on_noise(kind, images, precision=precision, runs=runs, device="cuda")


def workloads() -> Mapping[str, tuple[Callable[[], Session], int, tuple[str, ...]]]:
    """Return each workload: its session, the examples of earlier tasks, the kernels it calls."""
    permuted = partial(sessions.permuted, examples=EXAMPLES, device="cuda")
    two_rows = ("products", "losses", "rows", "rule")
    work: dict[str, tuple[Callable[[], Session], int, tuple[str, ...]]] = {}
    for method, precision, runs, used in (
        ("mega-ii", "float32", 1, two_rows),
        ("mega-ii", "float32", 5, two_rows),
        ("mega-ii", "float32", 64, two_rows),
        ("mega-ii", "tf32", 64, two_rows),
        ("van", "float32", 5, ("products", "losses")),
        ("gem", "float32", 5, ("products", "losses", "many rows", "quadratic programs")),
    ):
        session = partial(permuted, method, precision=precision, runs=runs)
        name = f"permuted-mnist, {method}, {precision}, R = {runs}"
        work[name] = session, sessions.EARLIER, used
    for kind, precision in (
        (sessions.CIFAR, "tf32"),
        (sessions.CIFAR, "bfloat16"),
        (sessions.CUB, "tf32"),
        (sessions.CUB, "bfloat16"),
    ):
        name = f"{kind.benchmark}, mega-ii, {precision}, R = 1"
        work[name] = partial(_on_noise, kind, precision, 1), kind.earlier, ("rows", "norms", "rule")
    return work


@contextmanager
def replaced(changes: tuple[Change, ...]) -> Iterator[None]:
    """Replace attributes for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def measure(name: str) -> list[dict[str, Any]]:
    """Return a row for each variant of a workload."""
    build, earlier, used = workloads()[name]
    known = families()
    variants: dict[str, tuple[Change, ...]] = {AS_IT_IS: ()}
    for family in used:
        for way, changes in known[family].items():
            if way == "torch" or "tf32" not in name:  # torch.compile refuses torch's TF32 switch
                variants[f"{family}: {way}"] = changes
    variants["none of them"] = tuple(change for family in used for change in known[family]["torch"])
    found, times = list[dict[str, Any]](), dict[str, list[float]]()
    with ExitStack() as stack:
        ready, steps = dict[str, BenchmarkSession](), 0
        for variant, changes in variants.items():
            try:
                with replaced(changes):
                    session = stack.enter_context(build())
                    steps = len(session.last_task(earlier))
                    _take(session, 0, WARM_UP)
                torch.cuda.synchronize()
            except RuntimeError as error:  # torch.compile does not take everything
                reason = " ".join(str(error).split())[:200]
                found.append({"workload": name, "variant": variant, "note": reason})
                continue
            ready[variant], times[variant] = session, []
        length = (steps - WARM_UP - 1) // BLOCKS
        for block in range(BLOCKS):
            for variant, session in ready.items():
                first = WARM_UP + block * length
                begin, end = (
                    torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                    for _ in range(2)
                )
                begin.record()
                _take(session, first, first + length)
                end.record()
                torch.cuda.synchronize()
                times[variant].append(1e3 * begin.elapsed_time(end) / length)
    for variant, taken in times.items():
        ratios = [own / usual for own, usual in zip(taken, times[AS_IT_IS], strict=True)]
        found.append(
            {
                "workload": name,
                "variant": variant,
                "microseconds": statistics.median(taken),
                "ratio": statistics.median(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
            }
        )
    return found


def _take(session: BenchmarkSession, step: int, stop: int) -> None:
    while step < stop:
        step = session.take(step, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps with and without each kernel.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="all of them by default")
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    given = parser.parse_args()
    torch._dynamo.config.recompile_limit = 256  # every layer has a shape of its own
    rows: list[dict[str, Any]] = []
    for name in given.workloads or workloads():
        rows += measure(name)
        Console().print(report.speed_table("kernels", rows))
        if given.json is not None:
            tables = {"kernels": rows}
            command = "python benchmarks/kernels.py"
            report.save_performance(given.json, tables, device=device_name("cuda"), command=command)


if __name__ == "__main__":
    main()
