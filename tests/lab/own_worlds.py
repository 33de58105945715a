"""Small folders and tables of somebody's own, every example marked with what it is."""

import csv

import numpy as np
from PIL import Image

SIDE = 16
HOLIDAYS = {
    "2 beach": {"cat": 10, "dog": 5},
    "10 city": {"bird": 7, "cat": 10},
    "trip": {"ant": 4},
}


def write_photos(root, tasks):
    """Write images of one colour, (class, number, task); ``tasks`` is {task: {class: count}}."""
    every = sorted({name for classes in tasks.values() for name in classes})
    for task, classes in enumerate(tasks):
        for name, count in tasks[classes].items():
            write_class(root / classes / name, count, every.index(name), task)
    return root


def saved(path, image, **options):
    """Save an image among those of its class; return the folder of the classes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path.parent.parent


def write_class(folder, count, number, task=0):
    folder.mkdir(parents=True)
    for image in range(count):
        colour = (20 * number, image, 50 * task)
        pixels = np.full((6, 5, 3), colour, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"photo {image}.png")


def marks(images):
    """Return (class, number, task) of images [N, 3, H, W] of one colour."""
    return [(c // 20, n, t // 50) for c, n, t in np.asarray(images)[:, :, 0, 0].tolist()]


def write_csv(path, header, rows, delimiter=",", encoding="utf-8"):
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def read_csv(path):
    header, *lines = (line.split(",") for line in path.read_text().splitlines())
    return header, lines


def write_drifting(path, tasks=4, rows=60, seed=0):
    """Write a table of two classes around centres that wander from quarter to quarter."""
    source = np.random.default_rng(seed)
    lines = []
    for task in range(tasks):
        for row in range(rows):
            kind = row % 2
            centre = (1.5 - 3 * kind) * np.array([np.cos(task / 2), np.sin(task / 2)])
            width, height = source.normal(centre, 0.4)
            day = f"20{20 + task // 4}-{3 * (task % 4) + 1:02}-{1 + row % 28:02}"
            lines.append([day, f"{width:.4f}", f"{height:.4f}", "ab"[row % 2], "ny"[kind]])
    return write_csv(path, ["day", "width", "height", "letter", "bought"], lines)
