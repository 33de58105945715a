"""CIFAR-100 is read from both official forms in the files' order, and nothing is unpickled."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from official_layouts import (
    NAMES,
    cifar_arrays,
    pack,
    python2_pickle,
    write_cifar_binary,
    write_cifar_python,
)

from engram.errors import EngramError
from engram.lab import data

TRAIN, TEST = cifar_arrays(30, seed=1), cifar_arrays(12, seed=2)
REAL = os.environ.get("ENGRAM_DATA")


def python3_pickle(content):
    return pickle.dumps(content, protocol=2)


def check(found):
    assert found.train_images.dtype == found.test_images.dtype == np.uint8
    assert found.train_labels.dtype == found.test_labels.dtype == np.int64
    np.testing.assert_array_equal(found.train_images, TRAIN[0])
    np.testing.assert_array_equal(found.train_labels, TRAIN[1])
    np.testing.assert_array_equal(found.test_images, TEST[0])
    np.testing.assert_array_equal(found.test_labels, TEST[1])
    assert found.class_names == tuple(NAMES)


def test_binary_files(folder):
    write_cifar_binary(folder, TRAIN, TEST)
    check(data.load("cifar-100", folder))


@pytest.mark.parametrize("dumps", [python2_pickle, python3_pickle])
def test_python_files(folder, dumps):
    place = write_cifar_python(folder, TRAIN, TEST, dumps)
    oracle = pickle.loads((place / "train").read_bytes(), encoding="bytes")
    np.testing.assert_array_equal(oracle[b"data"].reshape(-1, 3, 32, 32), TRAIN[0])
    check(data.load("cifar-100", folder))


def test_an_array_by_columns(folder):
    by_columns = np.asfortranarray(TRAIN[0].reshape(len(TRAIN[0]), 3072))

    class Images:
        def __len__(self):
            return len(by_columns)

        def reshape(self, *_):
            return by_columns

    write_cifar_python(folder, (Images(), TRAIN[1]), TEST)
    check(data.load("cifar-100", folder))


@pytest.mark.parametrize("write", [write_cifar_binary, write_cifar_python])
def test_archives_are_read_where_they_lie(folder, cache, write):
    archive = pack(write(folder, TRAIN, TEST), "tar")
    check(data.load("cifar-100", folder))
    assert list(folder.iterdir()) == [archive]
    check(data.load("cifar-100", folder))
    assert len(list((cache / "unpacked").iterdir())) == 1


def test_all_forms_have_one_checksum(tmp_path):
    sums = set()
    for form, write in enumerate([write_cifar_binary, write_cifar_python]):
        for packed in (False, True):
            folder = tmp_path / f"{form}{packed}"
            folder.mkdir()
            place = write(folder, TRAIN, TEST)
            if packed:
                pack(place, "tar")
            sums.add(data.checksum("cifar-100", folder))
    assert len(sums) == 1


def test_class_names_are_optional(folder):
    place = write_cifar_binary(folder, TRAIN, TEST)
    (place / "fine_label_names.txt").unlink()
    assert data.load("cifar-100", folder).class_names == ()


@pytest.mark.parametrize("name", ["train.bin", "test.bin"])
def test_a_file_that_is_cut_short_is_named(folder, name):
    place = write_cifar_binary(folder, TRAIN, TEST)
    (place / name).write_bytes((place / name).read_bytes()[:-1])
    with pytest.raises(EngramError, match=f"{name}' is not a binary file of CIFAR-100, or is cut"):
        data.load("cifar-100", folder)


def test_a_label_that_is_none_is_refused(folder):
    place = write_cifar_binary(folder, TRAIN, TEST)
    (place / "train.bin").write_bytes(bytes([0, 100]) + bytes(3072))
    with pytest.raises(EngramError, match="a fine label is not 0 to 99"):
        data.load("cifar-100", folder)


def test_a_list_of_other_classes_is_refused(folder):
    place = write_cifar_binary(folder, TRAIN, TEST)
    (place / "fine_label_names.txt").write_text("cat dog")
    with pytest.raises(EngramError, match=r"fine_label_names.txt' names 2 classes, not 100"):
        data.load("cifar-100", folder)


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class Printing:
    def __reduce__(self):
        return print, ("unpickled",)


@pytest.mark.parametrize("key", [b"data", b"filenames", b"a key that nobody reads"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_hostile_pickle_is_refused_and_not_run(folder, key, protocol):
    place = write_cifar_python(folder, TRAIN, TEST)
    mark = folder / "it ran"
    (place / "train").write_bytes(pickle.dumps({key: Hostile(mark)}, protocol=protocol))
    with pytest.raises(EngramError, match=r"train' is not a pickle of plain values: it has the"):
        data.load("cifar-100", folder)
    assert not mark.exists()


def test_a_name_in_a_pickle_is_not_imported(folder, capsys):
    place = write_cifar_python(folder, TRAIN, TEST)
    (place / "meta").write_bytes(pickle.dumps({b"fine_label_names": Printing()}, protocol=2))
    with pytest.raises(EngramError, match="GLOBAL '__builtin__ print'"):
        data.load("cifar-100", folder)
    assert capsys.readouterr().out == ""


WRONG = {
    "no pickle": b"these are words",
    "nothing": b"",
    "cut short": python2_pickle({b"data": b"x" * 500})[:-100],
    "a list": python2_pickle([1, 2]),
    "no dictionary's key": pickle.PROTO + b"\x02}]K\x01s.",
    "an empty stack": pickle.PROTO + b"\x02s.",
    "no mark": pickle.PROTO + b"\x02}u.",
    "a state for a list": pickle.PROTO + b"\x02]K\x01b.",
    "nothing memorised": pickle.PROTO + b"\x02h\x05.",
    "without data": python2_pickle({b"fine_labels": [1]}),
    "data without labels": python2_pickle({b"data": np.zeros((1, 3072), np.uint8)}),
    "labels that are none": python2_pickle(
        {b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [b"1"]}
    ),
    "too few labels": python2_pickle({b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [1]}),
    "numbers of another kind": python2_pickle(
        {b"data": np.zeros((1, 3072), np.int16), b"fine_labels": [1]}
    ),
    "no array": python2_pickle({b"data": [1, 2], b"fine_labels": [1]}),
    "a function called for data": pickle.PROTO
    + b"\x02}(U\x04datac_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R"
    + b"U\x0bfine_labels]K\x01au.",
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG.keys())
def test_a_file_that_is_not_of_cifar_is_named(folder, content):
    place = write_cifar_python(folder, TRAIN, TEST)
    (place / "train").write_bytes(content)
    with pytest.raises(EngramError, match=r"train' is ") as caught:
        data.load("cifar-100", folder)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not REAL, reason="ENGRAM_DATA names no folder with CIFAR-100")
def test_the_real_one():
    found = data.load("cifar-100", Path(REAL))
    assert (len(found.train_labels), len(found.test_labels)) == (50_000, 10_000)
    assert set(np.bincount(found.train_labels)) == {500}
    assert set(np.bincount(found.test_labels)) == {100}
    means = found.train_images.mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(means, (0.50708, 0.48655, 0.44092), atol=1e-5)
    assert found.class_names[:2] == ("apple", "aquarium_fish")
