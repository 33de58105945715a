"""Image files into arrays of one size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engram.errors import EngramError

if TYPE_CHECKING:
    from PIL import Image

SIDE = 224  # pixels, of both sides
_PIECE = 256  # images: enough to keep the cores busy, few enough to hold
_NAMED = 3  # images, where many are broken
# What is read, and nothing else: of a file of any name Pillow would try all the kinds it knows, and
# for PostScript start Ghostscript. Its JPEG includes MPO, as some cameras write it.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")


def decode_images(
    paths: Sequence[Path], pixels: Callable[[Image.Image], np.ndarray] | None = None
) -> Iterator[np.ndarray]:
    """Yield the images in order, uint8 [n, 3, H, W], decoded on all cores.

    ``pixels`` makes uint8 [H, W, 3] of an opened image, H and W alike for all; unless it is
    given, 224 by 224 as in the paper's runs. Where one is broken all are still looked at, so
    that the error tells how many are.
    """
    try:
        from PIL import Image  # noqa: F401 (asked for here, used in the threads)
    except ImportError:
        raise EngramError(
            "Images are decoded by Pillow, which is not installed: pip install pillow."
        ) from None
    decode = partial(_decode, pixels=pixels or _squashed)
    broken = dict[Path, str]()
    with ThreadPoolExecutor() as pool:  # threads do: Pillow and numpy let each other run
        for start in range(0, len(paths), _PIECE):
            piece = paths[start : start + _PIECE]
            made = list[np.ndarray]()
            for path, result in zip(piece, pool.map(decode, piece), strict=True):
                if isinstance(result, str):
                    broken[path] = result
                else:
                    made.append(result)
            if not broken:
                yield np.stack(made)
    if broken:
        raise EngramError(_told(broken, len(paths)))


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
        with Image.open(path, formats=_FORMATS) as image:
            return pixels(image).transpose(2, 0, 1)
    except UnidentifiedImageError:  # whose text is the path again
        return "its content is of no format that is read"
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # of which Pillow warns, and refuses twice as many
        return f"it has more than the {most:,} pixels that Pillow takes for an image's"
    except Exception as error:  # a decoder may raise anything at a broken file
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return str(reason).rstrip(".")


def _told(broken: dict[Path, str], every: int) -> str:
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
