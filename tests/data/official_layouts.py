"""Small data sets in the official layouts, written by other means than they are read."""

import io
import pickle
import tarfile
import zipfile

import numpy as np
from PIL import Image

NAMES = [f"class_{label:02d}" for label in range(100)]


def cifar_arrays(count, seed):
    draws = np.random.default_rng(seed)
    images = draws.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return images, draws.integers(0, 100, count)


def write_cifar_binary(folder, train, test):
    place = folder / "cifar-100-binary"
    place.mkdir()
    for name, (images, labels) in {"train": train, "test": test}.items():
        with (place / f"{name}.bin").open("wb") as file:
            for image, label in zip(images, labels, strict=True):
                file.write(bytes([label // 5, label]) + image.tobytes())
    (place / "fine_label_names.txt").write_text("\n".join(NAMES) + "\n")
    return place


def write_cifar_python(folder, train, test, dumps=None):
    place = folder / "cifar-100-python"
    place.mkdir()
    dumps = dumps or python2_pickle
    for name, (images, labels) in {"train": train, "test": test}.items():
        content = {
            b"filenames": [b"image_%d.png" % number for number in range(len(labels))],
            b"batch_label": b"the only batch",
            b"fine_labels": labels.tolist(),
            b"coarse_labels": (labels // 5).tolist(),
            b"data": images.reshape(len(images), 3072),
        }
        (place / name).write_bytes(dumps(content))
    names = {b"fine_label_names": [name.encode() for name in NAMES]}
    (place / "meta").write_bytes(dumps(names))
    return place


class _Python2(pickle._Pickler):
    """Writes byte strings as Python 2 does."""

    def save_string(self, value):
        content = value if isinstance(value, bytes) else value.encode()
        if len(content) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(content)]) + content)
        else:
            self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(value)

    dispatch = pickle._Pickler.dispatch | {bytes: save_string, str: save_string}


def python2_pickle(value):
    file = io.BytesIO()
    _Python2(file, protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_image(path, pixels, kind="PNG", mode="RGB"):
    """Write an image under any name; a lossless kind unless asked for another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path, kind)


def colours(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def write_cub(folder, images):
    """Write images given as (class number, is for training, pixels), numbered as they come."""
    place = folder / "CUB_200_2011"
    place.mkdir()
    lines = {"images": [], "image_class_labels": [], "train_test_split": []}
    for number, (kind, training, pixels) in enumerate(images, start=1):
        path = f"{kind:03d}.Bird_{kind}/Bird_{number:04d}.jpg"
        write_image(place / "images" / path, pixels)
        lines["images"].append(f"{number} {path}")
        lines["image_class_labels"].append(f"{number} {kind}")
        lines["train_test_split"].append(f"{number} {training:d}")
    for name, rows in lines.items():
        (place / f"{name}.txt").write_text("\n".join(rows) + "\n")
    kinds = sorted({kind for kind, _, _ in images})
    names = [f"{kind} {kind:03d}.Bird_{kind}" for kind in kinds]
    (place / "classes.txt").write_text("\n".join(names) + "\n")
    return place


def write_awa(folder, counts):
    """Write as many images of one colour as are given by name; the colour is their number."""
    place = folder / "Animals_with_Attributes2"
    place.mkdir()
    names = [f"{place:5d}\t{name}" for place, name in enumerate(counts, start=1)]
    (place / "classes.txt").write_text("\n".join(names) + "\n")
    for kind, (name, count) in enumerate(counts.items()):
        for number in range(count):
            pixels = np.full((3, 5, 3), (kind, number, 0), dtype=np.uint8)
            write_image(place / "JPEGImages" / name / f"{name}_{10001 + number}.jpg", pixels)
    return place


def pack(place, kind):
    """Put a folder into an archive beside it, remove the folder, return the archive."""
    archive = place.parent / {"tar": f"{place.name}.tar.gz", "zip": f"{place.name}.zip"}[kind]
    files = sorted(path for path in place.rglob("*") if path.is_file())
    if kind == "tar":
        with tarfile.open(archive, "w:gz") as opened:
            for path in files:
                opened.add(path, path.relative_to(place.parent))
    else:
        with zipfile.ZipFile(archive, "w") as opened:
            for path in files:
                opened.write(path, path.relative_to(place.parent))
    for path in files:
        path.unlink()
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir()
    place.rmdir()
    return archive
