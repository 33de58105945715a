"""A checkpoint is tensors by name, read without unpickling anything else."""

import hashlib
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engram.errors import EngramError
from engram.lab import data


def weights():
    """Return a checkpoint with the public names of ResNet-18 and small tensors."""
    layers = {"conv1": "conv", "bn1": "norm"}
    for stage in range(1, 5):
        for block in range(2):
            prefix = f"layer{stage}.{block}"
            for number in (1, 2):
                layers |= {f"{prefix}.conv{number}": "conv", f"{prefix}.bn{number}": "norm"}
    values = OrderedDict()
    for name, kind in layers.items():
        values[f"{name}.weight"] = torch.randn(2, 2, 3, 3) if kind == "conv" else torch.randn(2)
        if kind == "norm":
            values[f"{name}.bias"] = torch.randn(2)
    return values


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_of_torch(tmp_path, zipped):
    saved, path = weights(), tmp_path / "weights.pth"
    torch.save(saved, path, _use_new_zipfile_serialization=zipped)
    found = data.load_weights(path)
    assert found.keys() == saved.keys()
    assert all(torch.equal(found[name], saved[name]) for name in saved)


def test_parameters_become_tensors(tmp_path):
    saved = {name: torch.nn.Parameter(value) for name, value in weights().items()}
    torch.save(saved, tmp_path / "weights.pt")
    found = data.load_weights(str(tmp_path / "weights.pt"))
    assert not any(value.requires_grad for value in found.values())


def test_a_file_of_safetensors(tmp_path):
    saved, path = weights(), tmp_path / "weights.safetensors"
    save_file(saved, path)
    found = data.load_weights(path)
    assert all(torch.equal(found[name], saved[name]) for name in saved)
    assert data.weights_checksum(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_public_checkpoint_by_its_name(folder, monkeypatch):
    with pytest.raises(EngramError, match="run `engram data fetch resnet18-imagenet`"):
        data.load_weights("resnet18-imagenet", folder)
    torch.save(weights(), folder / "resnet18-f37072fd.pth")
    assert "conv1.weight" in data.load_weights("resnet18-imagenet", folder)
    monkeypatch.setenv("ENGRAM_DATA", str(folder))
    assert "conv1.weight" in data.load_weights("resnet18-imagenet")
    assert len(data.weights_checksum("resnet18-imagenet")) == 64


class Hostile:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_file_is_refused_and_not_run(tmp_path, zipped):
    mark, path = tmp_path / "it ran", tmp_path / "weights.pth"
    torch.save(weights() | {"more": Hostile(mark)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(EngramError, match="is not a checkpoint of tensors alone") as caught:
        data.load_weights(path)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


WRONG = {
    "a whole module": lambda path: torch.save(torch.nn.Linear(2, 2), path),
    "a tensor": lambda path: torch.save(torch.ones(2), path),
    "numbers by name": lambda path: torch.save({"conv1.weight": 1.0}, path),
    "another network": lambda path: torch.save(torch.nn.Linear(2, 2).state_dict(), path),
    "one name fewer": lambda path: torch.save(dict(list(weights().items())[:-1]), path),
    "words": lambda path: path.write_text("these are words"),
    "nothing": lambda path: path.touch(),
    "half of it": lambda path: (torch.save(weights(), path), cut(path)),
}


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("write", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, write):
    path = tmp_path / "weights.pth"
    write(path)
    with pytest.raises(EngramError, match=r"weights\.pth' is not a checkpoint") as caught:
        data.load_weights(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_of_safetensors(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(weights(), path)
    cut(path)
    with pytest.raises(EngramError, match="is not a checkpoint of tensors alone, or is damaged"):
        data.load_weights(path)


def test_other_kinds_of_files_are_not_opened(tmp_path):
    with pytest.raises(EngramError, match=r"is a file \.pth, \.pt or \.safetensors, not"):
        data.load_weights(tmp_path / "weights.pkl")


@pytest.mark.parametrize("name", ["none.pth", "none.safetensors"])
def test_a_file_that_is_not_there(tmp_path, name):
    with pytest.raises(EngramError, match="cannot be read: No such file"):
        data.load_weights(tmp_path / name)
    with pytest.raises(EngramError, match="cannot be read: No such file"):
        data.weights_checksum(tmp_path / name)
