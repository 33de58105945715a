"""Training on one's own data that starts from the weights in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.lab.data import load_checkpoint, weights_checksum
from engram.lab.networks import MLP, ModuleNetwork, Network, ResNet
from engram.lab.settings import Settings, setting

_NONE = "none"


def _known_by(weights: str) -> str:
    return f"sha256:{weights_checksum(weights)}"


@dataclass(frozen=True)
class PretrainedSettings(Settings):
    """Settings of a stream whose network may start from a file."""

    weights: str = setting(
        _NONE,
        "the checkpoint that training starts from: a file (.pth, .pt or .safetensors), "
        "resnet18-imagenet, or none",
        later=True,
        known_by=_known_by,
    )

    @property
    def starts_from_file(self) -> bool:
        """Whether training starts from a file's weights."""
        return self.weights != _NONE


class Checkpoint:
    """The tensors of a file, by their names, that networks begin with.

    Every parameter of the network must be there in its shape. Only where the outputs are others,
    in number or because the file has none, are those of the network's last layer drawn anew. What
    a network holds beside its parameters, running averages and what is frozen, is taken over where
    the file has it.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._held = load_checkpoint(place)
        for name, value in self._held.items():
            if not bool(torch.isfinite(value).all() if value.is_floating_point() else True):
                raise EngramError(f"weights must be finite, but {name} in {place!r} is not.")

    def resnet(self, classes: int, *, autocast: bool) -> ResNet:
        """Return the residual network of 18 layers that the file is of.

        Its width, its stem and whether shortcuts have norms are told by the file; the usual one,
        which has those and a large stem, has a max-pool behind the stem.
        """
        stem = self._held.get("conv1.weight")
        if stem is None or stem.dim() != 4 or stem.shape[2] not in (3, 7):
            raise EngramError(
                f"weights must be a checkpoint of a ResNet-18 where no --network is given, and "
                f"{self._place!r} has no conv1.weight of 3 × 3 or 7 × 7."
            )
        large, norm = stem.shape[2] == 7, "layer2.0.downsample.1.weight" in self._held
        return ResNet(
            classes,
            stem.shape[0],
            large_images=large,
            max_pool=large and norm,
            shortcut_norm=norm,
            autocast=autocast,
        )

    def mlp(self, features: int, classes: int) -> MLP:
        """Return the perceptron that the file is of: ``mlp``, with its layers' own widths."""
        widths = [weight.shape[0] for weight in self._layers()]
        if not widths:
            raise EngramError(
                f"weights must be a checkpoint of the network 'mlp' where no --network is given, "
                f"and {self._place!r} has no 1.weight [units, inputs]."
            )
        return MLP((features, *widths[:-1], classes))

    def _layers(self) -> Iterator[Tensor]:
        number = 1
        while (weight := self._held.get(f"{number}.weight")) is not None and weight.dim() == 2:
            yield weight
            number += 2

    def fill(self, network: Network, parameters: Tensor) -> None:
        """Let a run's freshly drawn parameters [d] be those of the file."""
        named = _named(network, parameters)
        last = [*named][-1].rpartition(".")[0] + "."
        outputs = len([*named.values()][-1])
        for name, view in named.items():
            found = self._held.get(name)
            if found is not None and found.shape == view.shape and found.is_floating_point():
                view.copy_(found)
                continue
            others = found is None or found.shape[1:] == view.shape[1:]
            if not (others and name.startswith(last) and view.shape[:1] == (outputs,)):
                raise EngramError(
                    f"weights must be a checkpoint of this network, but {self._place!r} has no "
                    f"{name} of shape {tuple(view.shape)}."
                )

    def fill_buffers(self, network: Network, buffers: Tensor) -> None:
        """Let what R runs hold beside their parameters, [R, b], be what the file has of it."""
        if isinstance(network, ResNet | ModuleNetwork) and network.buffer_size:
            for row in buffers:
                for name, view in network.named_buffers(row).items():
                    found = self._held.get(name)
                    if found is None:
                        continue
                    if found.shape != view.shape:
                        raise EngramError(
                            f"weights must be a checkpoint of this network, but {self._place!r} "
                            f"has no {name} of shape {tuple(view.shape)}."
                        )
                    view.copy_(found)


def _named(network: Network, parameters: Tensor) -> Mapping[str, Tensor]:
    if isinstance(network, ResNet | ModuleNetwork | MLP):
        return network.named_parameters(parameters)
    raise EngramError(
        f"weights must be none for a {type(network).__name__}, whose parameters have no names."
    )


def checkpoint_of(settings: PretrainedSettings) -> Checkpoint | None:
    """Return what a stream's networks begin with, if that is a file."""
    if not settings.starts_from_file:
        return None
    place = settings.weights
    path = Path(place).expanduser() if place.startswith("~") else Path(place)
    return _read(place, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=1)
def _read(place: str, state: int) -> Checkpoint:  # noqa: ARG001 (when it was last changed)
    return Checkpoint(place)
