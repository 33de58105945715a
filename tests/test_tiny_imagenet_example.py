"""TinyImageNet in its official layout, made into arrays and into AwA2's layout."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.lab.data import load

EXAMPLE = Path(__file__).parents[1] / "examples" / "tiny_imagenet.py"
CLASSES, EACH = 52, 7


@pytest.fixture
def official(tmp_path):
    """A folder like TinyImageNet's, whose grey tells the class and the image's number."""
    source = tmp_path / "tiny-imagenet-200"
    names = [f"n{place:08d}" for place in range(CLASSES)]
    (source / "val" / "images").mkdir(parents=True)
    (source / "wnids.txt").write_text("\n".join(reversed(names)))
    lines = []
    for label, name in enumerate(names):
        folder = source / "train" / name / "images"
        folder.mkdir(parents=True)
        for number in range(EACH):
            grey = 4 * label + 6 * number
            Image.new("RGB", (64, 64), (grey, grey, grey)).save(folder / f"{name}_{number}.JPEG")
        Image.new("L", (64, 64), 4 * label).save(source / "val" / "images" / f"val_{label}.JPEG")
        lines.append(f"val_{label}.JPEG\t{name}\t0\t0\t62\t62")
    (source / "val" / "val_annotations.txt").write_text("\n".join(lines))
    return source


def test_arrays_and_animals(official, tmp_path, monkeypatch):
    arrays, data = tmp_path / "arrays", tmp_path / "data"
    monkeypatch.setattr(sys, "argv", ["tiny", str(official), str(arrays), "--awa", str(data)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    for split, each in (("train", EACH), ("val", 1)):
        images = np.load(arrays / f"{split}_images.npy")
        labels = np.load(arrays / f"{split}_labels.npy")
        assert images.shape == (CLASSES * each, 64, 64, 3)
        assert images.dtype == np.uint8
        assert labels.tolist() == np.repeat(range(CLASSES), each).tolist()
        assert np.abs(images[::each, 0, 0, 0] - 4 * np.arange(CLASSES)).max() <= 2
    monkeypatch.setenv("ENGRAM_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    animals = load("awa2")
    train = int(0.7 * EACH)
    assert animals.train_labels.tolist() == np.repeat(range(50), train).tolist()
    shown = np.asarray(animals.train_images[:train]).reshape(train, -1).mean(1)
    assert np.abs(shown - 6 * np.arange(train)).max() <= 3  # in the order of the numbers
