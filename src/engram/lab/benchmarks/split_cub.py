"""Split CUB: the birds of CUB-200-2011, ten species to a task."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.lab.benchmarks.split import (
    ImageSettings,
    Part,
    SplitStream,
    complete,
    large_resnet,
    less_means,
    only,
    shuffled_parts,
)
from engram.lab.benchmarks.stream import Benchmark, data_name
from engram.lab.data import ImageSet, checksum, load, load_weights, sources, weights_checksum
from engram.lab.networks import Network, ResNet
from engram.lab.settings import setting

_NAME = "cub-200-2011"
_TUNING = range(30)
_TRAINING = range(30, 200)


@dataclass(frozen=True)
class CubSettings(ImageSettings):
    """Settings of Split CUB."""

    weights: str = setting(
        "resnet18-imagenet",
        "the checkpoint that training starts from: resnet18-imagenet, a file, or none",
        place=True,
    )


class SplitCub(SplitStream):
    """The paper's third benchmark: 17 tasks of ten species, about 300 training images each.

    Labels 0 to 29 are for tuning, the others for training; run r shuffles them with numpy's seed
    1234 + r. Training starts from a pretrained network: its convolutions and the scales and
    shifts of its norms, but neither their running averages nor its head.
    """

    classes = 200
    classes_per_task = 10

    def __init__(
        self,
        seeds: Sequence[int],
        tasks: int = 17,
        examples: int = 300,
        *,
        settings: CubSettings | None = None,
        tuning: bool = False,
        device: torch.device | str = "cpu",
        images: ImageSet | None = None,  # of the same shape, in place of CUB's
    ) -> None:
        self._settings = settings or CubSettings()
        self._classes = _TUNING if tuning else _TRAINING
        mine = only(images or load(_NAME), self._classes)
        super().__init__(mine, seeds, tasks, examples, tuning=tuning, device=device)

    def cut(self, seed: int) -> list[Part]:
        """Return the tasks of one run."""
        parts = shuffled_parts(seed, self.images, self._classes, self.classes_per_task)
        return complete(parts, self.tasks, self.classes_per_task)

    def network(self) -> ResNet:
        """Return ResNet-18 as the paper's runs have it."""
        return large_resnet(self.classes, autocast=self._settings.precision == "bfloat16")

    def normalise(self, inputs: Tensor) -> Tensor:
        """Take the channels' means off 8-bit pixels."""
        return less_means(inputs)

    @cached_property
    def _pretrained(self) -> dict[str, Tensor]:
        weights = self._settings.weights
        return {} if weights == "none" else load_weights(weights)

    def initialise(self, network: Network, seed: int) -> Tensor:
        """Return a run's own head on the pretrained network."""
        parameters = super().initialise(network, seed)
        if not self._pretrained:
            return parameters
        if not isinstance(network, ResNet):
            raise EngramError(
                f"weights must be none for a network of your own, not {self._settings.weights!r}: "
                "they are those of the paper's ResNet-18."
            )
        for name, view in network.named_parameters(parameters).items():
            if name.startswith("fc."):
                continue
            if name not in self._pretrained or self._pretrained[name].shape != view.shape:
                raise EngramError(
                    "weights must be a checkpoint of ResNet-18, but "
                    f"{self._settings.weights} has no {name} of shape {tuple(view.shape)}."
                )
            view.copy_(self._pretrained[name])
        return parameters


def _checksum(settings: CubSettings) -> str:
    """Return the name of the data: that of others where training starts from other weights.

    Weights are known by what their file holds, wherever it lies.
    """
    images = checksum(_NAME)
    if settings.weights == "none":
        return data_name(images, papers=False)
    weights = weights_checksum(settings.weights)
    both = hashlib.sha256(f"{images} {weights}".encode()).hexdigest()
    public = any(source.checksum == f"sha256:{weights}" for source in sources())
    return data_name(both, papers=public)


SPLIT_CUB = Benchmark(
    name="split-cub",
    settings=CubSettings,
    paper_tasks=17,
    most_tasks=17,
    most_examples=300,
    build=SplitCub,
    checksum=_checksum,
)
