"""Lessons in Permuted MNIST, of which the last task's steps are measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engram.protocol import Lesson, build_stream, lesson, specify

NAME = "permuted-mnist"
PRECISIONS = ("float32", "tf32")  # of the network's passes
EXAMPLES = 25_000  # of the last task: enough for several steps to a replay
EARLIER = 500  # examples of every task before the last; the memory keeps 250 of them


@contextmanager
def permuted(
    method: str,
    *,
    tasks: int = 17,
    examples: int = EARLIER,
    runs: int = 1,
    device: str = "cpu",
    precision: str = "float32",
    deterministic: bool = False,
) -> Iterator[Lesson]:
    """Yield the lesson of a method in R runs of so many tasks, each of so many examples."""
    overrides = {"precision": precision}
    spec = specify(NAME, method, tasks=tasks, examples=examples, overrides=overrides)
    stream = build_stream(spec, range(runs), device)
    with lesson(spec, stream, device=device, deterministic=deterministic) as held:
        yield held
