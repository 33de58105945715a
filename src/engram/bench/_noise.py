"""Benchmarks of images on noise of the same shape, so that no data set is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from engram.data import ImageSet
from engram.protocol import Lesson, lesson, specify
from engram.streams import benchmark


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
) -> Iterator[Lesson]:
    """Yield the lesson of MEGA-II in R runs of a benchmark of images."""
    given = {**kind.overrides, "precision": precision}
    spec = specify(kind.benchmark, "mega-ii", tasks=tasks, overrides=given)
    stream = benchmark(kind.benchmark).build(
        range(runs),
        tasks,
        spec.examples,
        settings=spec.stream_settings(),
        device=device,
        images=images,
    )
    with lesson(spec, stream, device=device, deterministic=deterministic) as held:
        yield held
