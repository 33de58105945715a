"""What a benchmark is, before a stream of it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engram.settings import Settings
from engram.streams._stream import Stream

PERCEPTRONS = 64  # that train as one on a GPU: twice as fast, a run, as five
RESNETS = 5  # the same of reduced residual networks: the most that were measured


@dataclass(frozen=True)
class Benchmark:
    """A benchmark by name: what it can be told, how large it is, and how to build a stream of it.

    ``build(seeds, tasks, examples, settings=, tuning=, device=)`` makes the stream: with
    ``tuning`` one of tuning tasks, which holds no training task. ``checksum(settings)`` names the
    data under it.
    """

    name: str
    settings: type[Settings]
    paper_tasks: int
    most_examples: int  # in one task
    build: Callable[..., Stream]
    checksum: Callable[[Any], str]
    most_tasks: int | None = None  # None: as many as are asked for
    tuning_tasks: int = 3
    stacks: int = 1  # the most runs of its network that train as one on a GPU
