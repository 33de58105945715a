"""Make TinyImageNet into what stands in for data that cannot be had everywhere.

    python examples/tiny_imagenet.py tiny-imagenet-200 ARRAYS [--awa DATA]

ARRAYS gets what ``examples/pretrain.py`` reads, for Split CUB without ImageNet's checkpoint.
With ``--awa`` the folder DATA gets 50 classes laid out as Animals with Attributes 2, so that
``engram run split-awa mega-ii --data DATA`` runs on them; results on it are not those of AwA2.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 64
AWA_CLASSES, AWA_IMAGES = (
    50,
    200,
)  # the first classes of the list, sorted, and the first images of each

Labelled = list[tuple[Path, int]]


def number(path: Path) -> int:
    """Return an image's number in its class: 17 of ``n01443537_17.JPEG``."""
    return int(path.stem.rpartition("_")[2])


def training_images(source: Path, classes: list[str]) -> Labelled:
    """Return the training images, class by class, each in the order of its numbers."""
    return [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((source / "train" / name / "images").glob("*.JPEG"), key=number)
    ]


def validation_images(source: Path, classes: list[str]) -> Labelled:
    """Return the validation images, whose classes are in a table."""
    lines = (source / "val" / "val_annotations.txt").read_text("utf-8").splitlines()
    named = [line.split("\t")[:2] for line in lines]
    folder = source / "val" / "images"
    return [(folder / file, classes.index(name)) for file, name in named if name in classes]


def pixels(path: Path) -> NDArray[np.uint8]:
    """Return an image's pixels [64, 64, 3]."""
    with Image.open(path, formats=["JPEG"]) as image:
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE)))


def write_arrays(images: Labelled, folder: Path, split: str) -> None:
    """Write the images and the labels of a split."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{split}_images.npy", np.stack([pixels(path) for path, _ in images]))
    np.save(folder / f"{split}_labels.npy", np.array([label for _, label in images]))


def write_awa(images: Labelled, classes: list[str], data: Path) -> None:
    """Write the first classes in AwA2's layout: a list of them, and a folder of images each."""
    folder = data / "Animals_with_Attributes2"
    for label, name in enumerate(classes[:AWA_CLASSES]):
        target = folder / "JPEGImages" / name
        target.mkdir(parents=True, exist_ok=True)
        mine = [path for path, other in images if other == label][:AWA_IMAGES]
        for place, path in enumerate(mine, start=10_001):
            (target / f"{name}_{place}.jpg").write_bytes(path.read_bytes())
    lines = [f"{place}\t{name}\n" for place, name in enumerate(classes[:AWA_CLASSES], start=1)]
    (folder / "classes.txt").write_text("".join(lines), "utf-8")


def main() -> None:
    """Read, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("arrays", type=Path)
    parser.add_argument("--awa", type=Path, metavar="DATA")
    options = parser.parse_args()
    classes = sorted((options.source / "wnids.txt").read_text("utf-8").split())
    images = training_images(options.source, classes)
    write_arrays(images, options.arrays, "train")
    write_arrays(validation_images(options.source, classes), options.arrays, "val")
    if options.awa:
        write_awa(images, classes, options.awa)


if __name__ == "__main__":
    main()
