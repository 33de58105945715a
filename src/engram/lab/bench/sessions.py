"""What is measured: a method in the last task of Permuted MNIST, or of images that are noise.

Noise has the shape of the benchmarks' images, so that no data set is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from engram.lab.benchmarks import benchmark
from engram.lab.data import ImageSet
from engram.lab.protocol import BenchmarkSession, benchmark_session, build_stream, specify

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
    network: str | None = None,
) -> Iterator[BenchmarkSession]:
    """Yield the session of a method in R runs of so many tasks, each of so many examples.

    A ``network`` is a module in the place of the one that is written by hand.
    """
    overrides = {"precision": precision}
    spec = specify(
        NAME, method, tasks=tasks, examples=examples, overrides=overrides, network=network
    )
    stream = build_stream(spec, range(runs), device)
    with benchmark_session(spec, stream, device=device, deterministic=deterministic) as session:
        yield session


class Later:
    """Steps from a number on, which are counted from 0."""

    def __init__(self, session: BenchmarkSession, first: int) -> None:
        self._session, self._first = session, first

    def __call__(self, step: int, stop: int) -> int:
        """Take a step, or several before ``stop``; return the number of the next."""
        return self._session.take(step + self._first, stop + self._first) - self._first


class Noise(NamedTuple):
    """A benchmark of images, how large its images are, and how many stand for the real ones."""

    benchmark: str
    side: int  # pixels
    classes: int
    per_class: int  # training images
    earlier: int  # examples of every task before the last; they fill the memory
    overrides: dict[str, str]


CIFAR = Noise("split-cifar", 32, 100, per_class=200, earlier=200, overrides={})
CUB = Noise("split-cub", 224, 200, per_class=30, earlier=100, overrides={"weights": "none"})


def pictures(kind: Noise) -> ImageSet:
    """Return the noise: ``per_class`` training images of each class, and one to test on."""
    source = np.random.default_rng(0)
    shape = (3, kind.side, kind.side)
    labels, tests = np.repeat(np.arange(kind.classes), kind.per_class), np.arange(kind.classes)
    drawn = [
        source.integers(256, size=(len(each), *shape), dtype=np.uint8) for each in (labels, tests)
    ]
    return ImageSet(drawn[0], labels, drawn[1], tests, (), "noise")


@contextmanager
def on_noise(
    kind: Noise,
    images: ImageSet,
    *,
    precision: str,
    runs: int = 1,
    tasks: int = 17,
    device: str = "cpu",
    deterministic: bool = False,
    network: str | None = None,
) -> Iterator[BenchmarkSession]:
    """Yield the session of MEGA-II in R runs of a benchmark of images."""
    given = {**kind.overrides, "precision": precision}
    spec = specify(kind.benchmark, "mega-ii", tasks=tasks, overrides=given, network=network)
    stream = benchmark(kind.benchmark).build(
        range(runs),
        tasks,
        spec.examples,
        settings=spec.stream_settings(),
        device=device,
        images=images,
    )
    with benchmark_session(spec, stream, device=device, deterministic=deterministic) as session:
        yield session
