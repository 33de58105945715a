"""Data sets of images: what one is, decoding its files, and the cache of what was decoded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram.errors import EngramError
from engram.files import whole_file

if TYPE_CHECKING:
    from hashlib import _Hash

    from PIL import Image

SIDE = 224  # pixels, of both sides
_AT_ONCE = 256  # images: enough to keep the cores busy, few enough to hold
_NAMED = 3  # images, where many are broken
# What is read, and nothing else: of a file of any name Pillow would try all the kinds it knows, and
# for PostScript start Ghostscript. Its JPEG includes MPO, as some cameras write it.
_IMAGE_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
_CACHE_FORMAT = 1  # and of what is decoded; a new one leaves the old files alone
_PIECE = 1 << 24  # bytes that are read at a time to be checked
_WHOLE: set[tuple[object, ...]] = set()  # what this process has checked: place and state of files
_LOG = logging.getLogger(__name__)


class ImageSet(NamedTuple):
    """A data set of colour images with whole-number labels, in its official order.

    ``N`` training and ``M`` test images of one size, 8 bits a channel, channels RGB. The images
    are read-only memory maps: what is not looked at is not read.
    """

    train_images: np.ndarray  # uint8 [N, 3, H, W]
    train_labels: np.ndarray  # int64 [N]
    test_images: np.ndarray  # uint8 [M, 3, H, W]
    test_labels: np.ndarray  # int64 [M]
    class_names: tuple[str, ...]  # by label; empty where the source names none
    checksum: str  # SHA-256 of shapes, labels and pixels


class Decoded(NamedTuple):
    """A data set as it comes out of its files."""

    train_labels: np.ndarray  # int64 [N]
    test_labels: np.ndarray  # int64 [M]
    class_names: tuple[str, ...]
    size: tuple[int, int]  # height and width
    images: Iterable[np.ndarray]  # uint8 [n, 3, H, W], pieces in order: training, then test


class Layout(NamedTuple):
    """The files of a data set that was found, and how to decode them."""

    name: str
    files: tuple[Path, ...]  # their paths, sizes and times of change are the set's identity
    decode: Callable[[], Decoded]


def decode_images(
    paths: Sequence[Path], pixels: Callable[[Image.Image], np.ndarray] | None = None
) -> Iterator[np.ndarray]:
    """Yield the images in order, uint8 [n, 3, H, W], decoded on all cores.

    ``pixels`` makes uint8 [H, W, 3] of an opened image, H and W alike for all; unless it is
    given, 224 by 224 as in the paper's runs. Where one is broken all are still looked at, so
    that the error says how many are.
    """
    try:
        from PIL import Image  # noqa: F401 (asked for here, used in the threads)
    except ImportError:
        raise EngramError(
            "Images are decoded by Pillow, which is not installed: "
            "pip install 'engram-torch[images]'."
        ) from None
    decode = partial(_decode, pixels=pixels or _squashed)
    broken = dict[Path, str]()
    with ThreadPoolExecutor() as pool:  # threads do: Pillow and numpy let each other run
        for start in range(0, len(paths), _AT_ONCE):
            piece = paths[start : start + _AT_ONCE]
            made = list[np.ndarray]()
            for path, result in zip(piece, pool.map(decode, piece), strict=True):
                if isinstance(result, str):
                    broken[path] = result
                else:
                    made.append(result)
            if not broken:
                yield np.stack(made)
    if broken:
        raise EngramError(_broken_message(broken, len(paths)))


def resize(image: np.ndarray) -> np.ndarray:
    """Return an image uint8 [H, W, 3] as uint8 [224, 224, 3], bilinear, its aspect not kept.

    The pixel at x of ``size`` takes its value at (x + 1/2) · W / size − 1/2 between the two
    pixels around it, each way. No wider window is averaged where the image shrinks: this is the
    resize of OpenCV, which the paper's code used; Pillow's own would smooth. Values are rounded
    to 8 bits. Every operation is rounded as IEEE says, so the result is the same everywhere.
    """
    top, bottom, down = _between(image.shape[0])
    left, right, across = _between(image.shape[1])
    rows = _mix(image[top], image[bottom], down[:, None, None])
    mixed: np.ndarray = np.rint(_mix(rows[:, left], rows[:, right], across[:, None]))
    return mixed.astype(np.uint8)


def _between(length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each new pixel the old ones on both sides, and how far it is to the second."""
    place = (np.arange(SIDE) + 0.5) * (length / SIDE) - 0.5
    place = place.clip(0, length - 1)
    first = np.floor(place).astype(np.int64)
    second = np.minimum(first + 1, length - 1)
    return first, second, (place - first).astype(np.float32)


def _mix(first: np.ndarray, second: np.ndarray, share: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = first * (1 - share) + second * share
    return mixed


def _squashed(image: Image.Image) -> np.ndarray:
    return resize(np.asarray(image.convert("RGB")))


def _decode(path: Path, pixels: Callable[[Image.Image], np.ndarray]) -> np.ndarray | str:
    """Return an image as uint8 [3, H, W], or why it cannot be."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=_IMAGE_FORMATS) as image:
            return pixels(image).transpose(2, 0, 1)
    except UnidentifiedImageError:  # whose text is the path again
        return "its content is of no format that is read"
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # of which Pillow warns, and refuses twice as many
        return f"it has more than the {most:,} pixels that Pillow takes for an image's"
    except Exception as error:  # a decoder may raise anything at a broken file
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return str(reason).rstrip(".")


def _broken_message(broken: dict[Path, str], every: int) -> str:
    """Return the sentence on images that cannot be decoded, the first of them by name."""
    if len(broken) == 1:
        ((path, reason),) = broken.items()
        return f"The image {str(path)!r} cannot be decoded: {reason}."
    root = os.path.commonpath([path.parent for path in broken]) or "."
    first = list(broken.items())[:_NAMED]
    named = [f"{str(path.relative_to(root))!r} ({reason})" for path, reason in first]
    rest = [f"{len(broken) - _NAMED:,} more"] if len(broken) > _NAMED else []
    return (
        f"{len(broken):,} of {every:,} images cannot be decoded, in {root!r}: "
        f"{', '.join(named + rest)}."
    )


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/engram``, or ``~/.cache/engram``."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if Path(given).is_absolute():  # the standard says to ignore a relative one
        return Path(given) / "engram"
    try:
        return Path.home() / ".cache" / "engram"
    except RuntimeError:
        raise EngramError("There is no home folder to cache in: set XDG_CACHE_HOME.") from None


def cached(layout: Layout) -> ImageSet:
    """Return the data set, decoded at the first call and mapped from the cache ever after.

    The cache belongs to the files as they are: their paths, sizes and times of change. Two
    processes that decode at once write the same bytes, and each file replaces the other's whole.
    What is in the cache is held to its checksum once in every process, so that the images are
    those that results are filed under; for a damaged one there is a warning, and a new one.
    """
    place = cache_folder() / "decoded" / f"{layout.name}-{_identity(layout)}"
    found = _read_cache(place)
    if found is None:
        if place.with_suffix(".json").exists():  # it is written last
            _LOG.warning("The decoded images %s are damaged, and are decoded anew.", place)
        _write_cache(place, layout.decode())
        found = _read_cache(place)
    if found is None:
        raise EngramError(f"The cache {str(place)!r} was changed while it was written; try again.")
    return found


def _identity(layout: Layout) -> str:
    files = []
    for path in layout.files:
        try:
            state = path.stat()
        except OSError as error:
            raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
        files.append([str(path.absolute()), state.st_size, state.st_mtime_ns])
    text = json.dumps([_CACHE_FORMAT, layout.name, files])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_cache(place: Path, decoded: Decoded) -> None:
    """Write the array, then the page: where there is a page, the array is whole."""
    train, test = decoded.train_labels, decoded.test_labels
    shape = (len(train) + len(test), 3, *decoded.size)
    digest = _digest(shape, train, test)
    with whole_file(place.with_suffix(".npy")) as part, part.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        # Written, not mapped: a full disk is then an error and not the end of the process.
        for piece in decoded.images:
            content = np.ascontiguousarray(piece)
            digest.update(content.data)
            file.write(content.data)
    page = {
        "train_labels": train.tolist(),
        "test_labels": test.tolist(),
        "class_names": decoded.class_names,
        "class_names_checksum": _names_checksum(decoded.class_names),
        "checksum": digest.hexdigest(),
    }
    with whole_file(place.with_suffix(".json")) as part:
        part.write_text(json.dumps(page), "utf-8")


def _read_cache(place: Path) -> ImageSet | None:
    """Return what is cached, or None where nothing is, or not what was written."""
    files = [place.with_suffix(suffix) for suffix in (".json", ".npy")]
    try:
        state = (place, *(_state(path) for path in files))
        page = json.loads(files[0].read_bytes())
        images = np.load(files[1], mmap_mode="r", allow_pickle=False)
        train = np.array(page["train_labels"], dtype=np.int64)
        test = np.array(page["test_labels"], dtype=np.int64)
        names, checksum = tuple(page["class_names"]), page["checksum"]
        names_checksum = page.get("class_names_checksum")  # pages of before have none
    except Exception:  # NumPy's reader may raise anything at a header that is damaged
        return None
    if not isinstance(images, np.memmap):  # but a container of others
        return None
    if images.dtype != np.uint8 or not images.flags.c_contiguous:
        return None
    if len(images) != len(train) + len(test):
        return None
    if names_checksum not in (None, _names_checksum(names)):
        return None
    if state not in _WHOLE:
        if _content_checksum(images, train, test) != checksum:
            return None
        _WHOLE.add(state)
    cut = len(train)
    return ImageSet(images[:cut], train, images[cut:], test, names, checksum)


def _state(path: Path) -> tuple[int, ...]:
    """Return what is another after any change of a file."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _content_checksum(images: np.ndarray, train: np.ndarray, test: np.ndarray) -> str:
    digest = _digest(images.shape, train, test)
    content = images.reshape(-1)
    for start in range(0, len(content), _PIECE):
        digest.update(content[start : start + _PIECE].data)
    return digest.hexdigest()


def _digest(shape: Sequence[int], train: np.ndarray, test: np.ndarray) -> _Hash:
    """Return the SHA-256 of all but the pixels."""
    digest = hashlib.sha256(repr((tuple(shape), len(train))).encode())
    for labels in (train, test):
        digest.update(labels.astype("<i8").tobytes())
    return digest


def _names_checksum(names: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()
