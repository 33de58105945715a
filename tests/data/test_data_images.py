"""CUB-200-2011 and Animals with Attributes 2: order, labels, split and pixels."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from official_layouts import colours, pack, write_awa, write_cub, write_image
from PIL import Image

from engram.errors import EngramError
from engram.lab import data
from engram.lab.data.awa import split
from engram.lab.data.images import resize

REAL = Path(os.environ.get("ENGRAM_DATA", ""))
REAL_CUB = "ENGRAM_DATA" in os.environ and (REAL / "CUB_200_2011").is_dir()
# How many images each class of Animals with Attributes 2 has, in the order of its classes.
AWA_COUNTS = """
    1046 852 291 193 549 747 1645 1033 174 500 188 100 877 684 720 704 291 709 1038 872 728 664 1420
    988 728 779 1200 696 1088 383 1202 589 567 310 272 758 895 1170 874 1344 630 713 1019 185 868
    1028 215 512 1338 946
"""


def bilinear(pixels):
    """Resize by torch, in double precision: float [224, 224, 3], not rounded."""
    image = torch.from_numpy(pixels.astype(np.float64)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(image, (224, 224), mode="bilinear")
    return resized[0].permute(1, 2, 0).numpy()


SIZES = [(375, 500), (500, 333), (224, 224), (1, 1), (2, 3), (64, 64), (300, 20), (223, 225)]


@pytest.mark.parametrize("size", SIZES)
def test_images_are_resized_without_smoothing(size):
    pixels = colours(*size)
    found = resize(pixels)
    assert found.dtype == np.uint8
    assert np.abs(found - bilinear(pixels)).max() < 0.501


def cub_images():
    order = [(2, True), (1, False), (1, True), (2, True), (3, False), (1, True)]
    return [
        (kind, training, colours(20 + number, 30, seed=number))
        for number, (kind, training) in enumerate(order)
    ]


def test_cub_has_the_official_split_in_the_official_order(folder):
    images = cub_images()
    write_cub(folder, images)
    found = data.load("cub-200-2011", folder)
    assert found.class_names == ("Bird_1", "Bird_2", "Bird_3")
    for training, pixels, labels in (
        (True, found.train_images, found.train_labels),
        (False, found.test_images, found.test_labels),
    ):
        wanted = [(kind, image) for kind, mine, image in images if mine == training]
        assert labels.tolist() == [kind - 1 for kind, _ in wanted]
        assert pixels.shape == (len(wanted), 3, 224, 224)
        for got, (_, image) in zip(pixels, wanted, strict=True):
            np.testing.assert_array_equal(got, resize(image).transpose(2, 0, 1))


def test_cub_follows_the_list_and_not_the_numbers(folder):
    place = write_cub(folder, cub_images())
    before = data.load("cub-200-2011", folder)
    for name in ("images", "image_class_labels"):
        lines = (place / f"{name}.txt").read_text().splitlines()
        (place / f"{name}.txt").write_text("\n".join(reversed(lines)))
    after = data.load("cub-200-2011", folder)
    assert after.train_labels.tolist() == before.train_labels.tolist()[::-1]
    np.testing.assert_array_equal(after.train_images, before.train_images[::-1])


@pytest.mark.parametrize(("kind", "mode"), [("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "P")])
def test_images_of_any_kind_become_rgb(folder, kind, mode):
    place = write_cub(folder, cub_images())
    path = place / "images/002.Bird_2/Bird_0001.jpg"
    write_image(path, colours(40, 50), kind, mode)
    with Image.open(path) as image:
        assert image.mode == mode
        wanted = resize(np.asarray(image.convert("RGB")))
    found = data.load("cub-200-2011", folder)
    np.testing.assert_array_equal(found.train_images[0], wanted.transpose(2, 0, 1))


def test_an_image_that_is_missing_is_named(folder):
    place = write_cub(folder, cub_images())
    (place / "images/001.Bird_1/Bird_0003.jpg").unlink()
    with pytest.raises(EngramError, match=r"Bird_0003\.jpg' cannot be read: No such file"):
        data.load("cub-200-2011", folder)


@pytest.mark.parametrize("content", [b"", b"words", None])
def test_an_image_that_is_broken_is_named_and_nothing_is_left(folder, cache, content):
    place = write_cub(folder, cub_images())
    path = place / "images/001.Bird_1/Bird_0003.jpg"
    write_image(path, colours(400, 400), "JPEG")
    path.write_bytes(path.read_bytes()[:2000] if content is None else content)
    with pytest.raises(EngramError, match=r"Bird_0003\.jpg' cannot be decoded") as caught:
        data.load("cub-200-2011", folder)
    assert "\n" not in str(caught.value)
    assert list((cache / "decoded").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("images", "1\n", "images.txt' is not a list of CUB-200-2011"),
        ("images", "", "are empty or name different images"),
        ("train_test_split", "1 1\n", "are empty or name different images"),
        ("train_test_split", "\n".join(f"{n} 2" for n in range(1, 7)), "else than 0 and 1"),
        ("image_class_labels", "\n".join(f"{n} 0" for n in range(1, 7)), "whole number from 1"),
        ("image_class_labels", "\n".join(f"{n} x" for n in range(1, 7)), "whole number from 1"),
        ("image_class_labels", None, r"image_class_labels\.txt' cannot be read"),
    ],
)
def test_a_list_that_is_wrong_is_named(folder, name, text, sentence):
    path = write_cub(folder, cub_images()) / f"{name}.txt"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(EngramError, match=sentence):
        data.load("cub-200-2011", folder)


def test_awa_is_cut_by_the_rule_of_the_published_lists(folder):
    write_awa(folder, {"grizzly+bear": 10, "antelope": 4})
    found = data.load("awa2", folder)
    assert found.class_names == ("grizzly+bear", "antelope")
    assert found.train_labels.tolist() == [0] * 7 + [1] * 2
    assert found.train_images[:, 1, 0, 0].tolist() == [*range(7), 0, 1]  # green: the number
    assert found.test_labels.tolist() == [0, 1]
    assert found.test_images[:, 1, 0, 0].tolist() == [9, 3]


def test_awa_is_cut_as_the_published_lists_are():
    cuts = [(count, *split(count)) for count in map(int, AWA_COUNTS.split())]
    assert sum(begin for _, begin, _ in cuts) == 26_102
    assert sum(end - begin for _, begin, end in cuts) == 5_620
    assert sum(count - end for count, _, end in cuts) == 5_600
    # Where 0.7 n is a whole number, the lists have one training image fewer in two classes.
    assert split(720) == (503, 503 + 108)
    assert split(1420) == (993, 993 + 213)
    assert split(100) == (70, 70 + 15)


def test_awa_with_a_gap_names_the_image(folder):
    place = write_awa(folder, {"ox": 10})
    (place / "JPEGImages/ox/ox_10008.jpg").unlink()  # one that is not even read
    with pytest.raises(EngramError, match=r"The image '.*ox_10008\.jpg' is missing"):
        data.load("awa2", folder)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no classes"),
        ("1\tox\n2\tox\n", "one of them twice"),
        ("ox\n", "is not a list of numbers and class names"),
        ("1\tox\n2\tfox\n", "fox' cannot be read"),
    ],
)
def test_awa_with_other_classes_is_refused(folder, text, sentence):
    place = write_awa(folder, {"ox": 3})
    (place / "classes.txt").write_text(text)
    with pytest.raises(EngramError, match=sentence):
        data.load("awa2", folder)


def test_awa_with_an_empty_class_is_refused(folder):
    place = write_awa(folder, {"ox": 3})
    for path in (place / "JPEGImages/ox").iterdir():
        path.unlink()
    with pytest.raises(EngramError, match=r"ox_10001\.jpg' is missing"):
        data.load("awa2", folder)


def test_awa_from_its_archive(folder):
    place = write_awa(folder, {"ox": 10})
    before = data.checksum("awa2", folder)
    pack(place, "zip").rename(folder / "AwA2-data.zip")
    assert data.checksum("awa2", folder) == before


def test_cub_from_its_archive(folder):
    place = write_cub(folder, cub_images())
    before = data.checksum("cub-200-2011", folder)
    pack(place, "tar").rename(folder / "CUB_200_2011.tgz")
    assert data.checksum("cub-200-2011", folder) == before


def test_without_pillow_the_sentence_says_how_to_have_it(folder, monkeypatch):
    write_cub(folder, cub_images())
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(EngramError, match=r"pip install 'engram-torch\[images\]'"):
        data.load("cub-200-2011", folder)


@pytest.mark.slow
@pytest.mark.skipif(not REAL_CUB, reason="ENGRAM_DATA names no folder with CUB-200-2011")
def test_the_real_cub():
    found = data.load("cub-200-2011", REAL)
    assert found.train_images.shape == (5_994, 3, 224, 224)
    assert found.test_images.shape == (5_794, 3, 224, 224)
    counts = np.bincount(found.train_labels)
    assert np.flatnonzero(counts == 29).tolist() == [106, 125, 134, 140, 189, 195]
    assert np.sum(counts == 30) == 194
    assert found.class_names[0] == "Black_footed_Albatross"
