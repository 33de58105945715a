"""A version that answers: its network and what was fitted, ready to predict and to be exported."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.errors import EngramError
from engram.lab.targets import Classes, Labels, Numbers
from engram.production.artefact import (
    Artefact,
    Document,
    Version,
    damage_named,
    file_digest,
    read_json,
)
from engram.production.erasure import Erasures
from engram.production.networks import Network
from engram.production.preprocessing import Preprocessing
from engram.production.sources import read
from engram.production.training import answer

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Predictions:
    """What a version answers, an element for each example.

    ``answers`` are names of classes; or, of several labels and of numbers, a list for each
    example. ``probabilities`` [n, outputs] are those of ``names``, None for numbers.
    """

    ids: list[str]
    answers: list[Any]
    names: tuple[str, ...]
    probabilities: NDArray[np.float32] | None
    version: int

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def header(self) -> list[str]:
        """The columns of `rows`."""
        kinds = ["prediction"] if self.answers and isinstance(self.answers[0], str) else []
        kinds = kinds or [f"prediction {name}" for name in self.names]
        chances = [f"probability {name}" for name in self.names]
        return ["id", *kinds, *(chances if self.probabilities is not None else []), "version"]

    def rows(self) -> Iterator[list[Any]]:
        """Yield what a table of them has, row by row."""
        for place, (id_, said) in enumerate(zip(self.ids, self.answers, strict=True)):
            chances = [] if self.probabilities is None else self.probabilities[place].tolist()
            yield [id_, *([said] if isinstance(said, str) else said), *chances, self.version]


class Model:
    """A version of an artefact that answers; `engram.load` returns one."""

    def __init__(
        self,
        version: Version,
        preprocessing: Preprocessing,
        network: nn.Module,
        device: torch.device,
    ) -> None:
        self._preprocessing = preprocessing
        self._device = device
        self.version = version.number
        self.facts = version.facts
        self.network = network

    def __repr__(self) -> str:
        return (
            f"Model(version {self.version}, {type(self.network).__name__}, "
            f"{self._preprocessing.kind} to {self._preprocessing.target.kind})"
        )

    @property
    def preprocessing(self) -> Preprocessing:
        """What was fitted: columns, categories, scaling, classes."""
        return self._preprocessing

    def predict(self, data: object) -> Predictions:
        """Answer a data frame, a table's or folder's source, tensors, or paths of images.

        Columns must be those that the model was fitted with; targets are not looked at.
        """
        preprocessing = self._preprocessing
        found = read(data, preprocessing.settings, asked=True)
        outputs = answer(
            self.network, preprocessing, preprocessing.rows(found, asked=True), self._device
        )
        target, allowed = preprocessing.target, preprocessing.allowed
        mask = None if allowed is None else allowed.expand(len(outputs), -1)
        probabilities: NDArray[np.float32] | None = None
        said = target.predictions(outputs, mask)
        if isinstance(target, Classes):
            answers: list[Any] = [target.names[place] for place in said.tolist()]
            probabilities = target.probabilities(outputs, mask).numpy()
        elif isinstance(target, Labels):
            answers = [[int(each) for each in row] for row in said.tolist()]
            probabilities = target.probabilities(outputs).numpy()
        else:
            assert isinstance(target, Numbers)
            answers = said.tolist()
        return Predictions(list(found.ids), answers, target.names, probabilities, self.version)

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the network's outputs for inputs that are encoded already."""
        with torch.no_grad():
            result: Tensor = self.network(inputs.to(self._device)).cpu()
        return result

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the network alone: ``.onnx`` by ONNX (extra ``onnx``), ``.pt2`` by torch.export.

        Preprocessing is no part of it: inputs are encoded already, [batch, …].
        """
        place = Path(path)
        example = self._example()
        network = self.network.cpu().eval()
        batch = torch.export.Dim("batch", min=1)
        shapes: Any = ({0: batch},)
        try:
            if place.suffix == ".pt2":
                program = torch.export.export(network, (example,), dynamic_shapes=shapes)
                torch.export.save(program, place)
            elif place.suffix == ".onnx":
                _need_onnx()
                with warnings.catch_warnings(action="ignore"):  # the exporter's, of torch itself
                    torch.onnx.export(
                        network,
                        (example,),
                        str(place),
                        dynamo=True,
                        dynamic_shapes=shapes,
                        external_data=False,
                        verbose=False,
                    )
            else:
                raise EngramError(f"export writes .onnx or .pt2, not {str(place)!r}.")
        except EngramError:
            raise
        except Exception as error:  # what cannot be exported raises anything
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise EngramError(f"The network cannot be exported: {reason}.") from error
        finally:
            self.network.to(self._device)

    def _example(self) -> Tensor:
        shape = self._preprocessing.inputs.shape
        if self._preprocessing.kind == "text":
            return torch.ones(2, *shape, dtype=torch.int64)
        return torch.zeros(2, *shape)


def _need_onnx() -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise EngramError(
            'ONNX is written by onnx and onnxscript: pip install "engram-torch[onnx]".'
        ) from None
    del onnx


def device_of(name: str) -> torch.device:
    """Return a device by name; ``auto`` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise EngramError(f"device must be auto, cpu, cuda or cuda:N, not {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EngramError(f"There is no GPU for the device {name!r}.")
    return device


def open_version(
    artefact: Artefact, version: Version, device: torch.device, trust_code: bool
) -> Model:
    """Return a version with its network, or refuse what is damaged or not trusted.

    Categories and classes that only the erased had are left out, whatever its files hold.
    """
    folder = version.folder
    network, document = check_version(version)
    tokenise = network.tokeniser(folder)
    with damage_named(folder / "preprocessing.json"):
        preprocessing = Preprocessing.from_json(document, tokenise)
        preprocessing = preprocessing.forget(Erasures(artefact).of_period(version.number))
    with torch.random.fork_rng(devices=[]):
        module = network.build(
            folder,
            preprocessing.inputs.shape,
            preprocessing.target.outputs,
            trust_code=trust_code,
        )
    load_weights(module, folder / WEIGHTS)
    return Model(version, preprocessing, module.to(device).eval(), device)


def check_version(version: Version) -> tuple[Network, Document]:
    """Return a version's network and what was fitted, or refuse it where a file is damaged.

    None of its code is run.
    """
    folder = version.folder
    network = read_network(version)
    if file_digest(folder / WEIGHTS) != version.facts["weights"]:
        raise EngramError(f"{str(folder / WEIGHTS)!r} is damaged: its checksum does not match.")
    network.check_files(folder)
    return network, read_json(folder / "preprocessing.json")


def read_network(version: Version) -> Network:
    """Return what makes a version's network."""
    path = version.folder / "network.json"
    document = read_json(path)
    with damage_named(path):
        return Network(**document)


def load_weights(module: nn.Module, path: Path) -> None:
    """Put the tensors of a file into a network; each must have its place and its shape."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        module.load_state_dict(load_file(path))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise EngramError(f"The weights {str(path)!r} do not fit the network: {error}.") from error


def load(
    path: str | os.PathLike[str],
    version: int | None = None,
    *,
    trust_code: bool = False,
    device: str = "cpu",
) -> Model:
    """Return the version of an artefact that answers, or another one."""
    artefact = Artefact(path)
    found = artefact.current if version is None else artefact.version(version)
    return open_version(artefact, found, device_of(device), trust_code)
