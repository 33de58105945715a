"""MEGA-II's step for more and more runs at once, and how much of it is matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engram.bench._events import microseconds
from engram.bench._floor import captured_products
from engram.bench._permuted import EARLIER, EXAMPLES, PRECISIONS, permuted
from engram.models import MLP, rounding
from engram.protocol import Lesson

_BOUNDS = {  # (precision, runs): microseconds that are good enough
    ("float32", 5): "150 a step",
    ("float32", 64): "12 a run's step",
    ("tf32", 64): "9 a run's step",
}


def stacks(
    device: str, runs: Sequence[int] = (1, 5, 20, 64), examples: int = EXAMPLES
) -> list[dict[str, Any]]:
    """Measure MEGA-II in the last of 17 tasks, in either precision."""
    rows = []
    for precision in PRECISIONS:
        for count in runs:
            with permuted(
                "mega-ii", examples=examples, runs=count, device=device, precision=precision
            ) as lesson:
                rows.append(_row(lesson, precision, count, device))
    return rows


def _row(lesson: Lesson, precision: str, runs: int, device: str) -> dict[str, Any]:
    steps = lesson.last_task(EARLIER)
    taken = microseconds(steps.take, len(steps))
    network, settings = lesson.method.network, lesson.method.settings
    assert isinstance(network, MLP)
    batches = (settings.reference_batch, settings.batch_size)
    with rounding(tf32=network.tf32):
        products = captured_products(network.sizes, batches, runs, device)
    floor = microseconds(products, len(steps)).median
    return {
        "precision": precision,
        "runs": runs,
        "microseconds": taken.median,
        "lowest": taken.lowest,
        "highest": taken.highest,
        "each": taken.median / runs,
        "products": floor,
        "share": floor / taken.median,
        "bound": _BOUNDS.get((precision, runs)),
    }
