"""Images are decoded once, wholly or not at all, and again when their files have changed."""

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from full_disk import files_of_at_most
from official_layouts import cifar_arrays, write_cifar_binary

from engram.errors import EngramError
from engram.lab import data

PLACE = "cifar-100-binary"
TRAIN, TEST = cifar_arrays(30, seed=1), cifar_arrays(12, seed=2)


@pytest.fixture
def folder(folder):
    """Return a data folder with CIFAR-100 in it."""
    write_cifar_binary(folder, TRAIN, TEST)
    return folder


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def written(cache):
    """Return which files hold the decoded images, and when they were written."""
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (cache / "decoded").iterdir()
    }


def test_the_second_call_decodes_nothing(folder, cache):
    first = data.load("cifar-100", folder)
    before = written(cache)
    assert len(before) == 2
    second = data.load("cifar-100", folder)
    assert written(cache) == before
    assert second.checksum == first.checksum == data.checksum("cifar-100", folder)
    np.testing.assert_array_equal(second.train_images, first.train_images)


def test_images_are_mapped_and_read_only(folder):
    found = data.load("cifar-100", folder)
    for images in (found.train_images, found.test_images):
        assert isinstance(images, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            images[0] = 0


def test_the_data_folder_is_only_read(folder, cache):
    before = content(folder)
    (folder / PLACE).chmod(0o555)
    folder.chmod(0o555)
    try:
        data.load("cifar-100", folder)
    finally:
        folder.chmod(0o755)
        (folder / PLACE).chmod(0o755)
    assert content(folder) == before
    assert sorted(path.suffix for path in (cache / "decoded").iterdir()) == [".json", ".npy"]


def test_a_file_that_changed_is_decoded_again(folder):
    before = data.load("cifar-100", folder)
    images, labels = TRAIN
    (folder / PLACE / "train.bin").write_bytes(bytes([0, 99]) + images[0].tobytes())
    after = data.load("cifar-100", folder)
    assert after.train_labels.tolist() == [99] != labels[:1].tolist()
    assert after.checksum != before.checksum


def test_a_file_of_the_same_size_with_another_time_is_decoded_again(folder):
    before = data.checksum("cifar-100", folder)
    path = folder / PLACE / "test.bin"
    time = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    os.utime(path, ns=(time, time + 1))
    assert data.checksum("cifar-100", folder) != before


def test_the_checksum_covers_labels_pixels_and_the_split(tmp_path):
    images, labels = TRAIN
    joined = (np.concatenate([images[-1:], TEST[0]]), np.concatenate([labels[-1:], TEST[1]]))
    cases = [
        (TRAIN, TEST),
        ((images, (labels + 1) % 100), TEST),
        ((images ^ 1, labels), TEST),
        (TRAIN, (TEST[0], (TEST[1] + 1) % 100)),
        ((images[:-1], labels[:-1]), joined),
    ]
    sums = set()
    for number, (train, test) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_cifar_binary(folder, train, test)
        sums.add(data.checksum("cifar-100", folder))
    assert len(sums) == len(cases)


@pytest.mark.parametrize("suffix", [".npy", ".json"])
@pytest.mark.parametrize("rest", [None, b"", b"half"])
def test_a_damaged_cache_is_written_again(folder, cache, suffix, rest):
    before = data.load("cifar-100", folder)
    (path,) = (cache / "decoded").glob(f"*{suffix}")
    if rest is None:
        path.unlink()
    else:
        path.write_bytes(rest)
    after = data.load("cifar-100", folder)
    assert after.checksum == before.checksum
    np.testing.assert_array_equal(after.test_images, TEST[0])


@pytest.mark.parametrize("suffix", [".npy", ".json"])
def test_whatever_bit_of_a_cache_is_changed_the_images_are_those_that_were_decoded(
    folder, cache, caplog, suffix
):
    before = data.load("cifar-100", folder)
    arrays = [part.copy() for part in before[:4]]
    (path,) = (cache / "decoded").glob(f"*{suffix}")
    content = path.read_bytes()
    damaged = 0
    for bit in [*range(0, 1000, 13), *range(1000, 8 * len(content), 8 * len(content) // 40)]:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        caplog.clear()
        after = data.load("cifar-100", folder)
        for one, other in zip(after[:4], arrays, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert after[4:] == before[4:]
        if caplog.messages:  # else the bit was one of the spaces of NumPy's header
            damaged += 1
            (told,) = caplog.messages
            assert told.startswith(f"The decoded images {path.with_suffix('')} are damaged")
        del after
    assert damaged > 50


def test_pixels_written_over_in_place_are_decoded_anew(folder, cache):
    """As a program does that keeps the file's length and its times."""
    before = data.checksum("cifar-100", folder)
    (path,) = (cache / "decoded").glob("*.npy")
    state = path.stat()
    with path.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"\0" * 100)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = data.load("cifar-100", folder)
    np.testing.assert_array_equal(after.test_images, TEST[0])
    assert after.checksum == before


def test_a_cache_of_before_is_used(folder, cache):
    data.load("cifar-100", folder)
    (path,) = (cache / "decoded").glob("*.json")
    page = json.loads(path.read_bytes())
    del page["class_names_checksum"]
    path.write_text(json.dumps(page))
    before = written(cache)
    data.load("cifar-100", folder)
    assert written(cache) == before


def test_two_that_decode_at_once_both_end_well(folder, cache, monkeypatch):
    both = threading.Barrier(2, timeout=30)
    for owner, name in ((np, "fromfile"), (Path, "replace")):
        call = getattr(owner, name)

        def together(*given, call=call, **more):
            both.wait()  # neither has read, or written, before the other does
            return call(*given, **more)

        monkeypatch.setattr(owner, name, together)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(data.load("cifar-100", folder)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.checksum for one in found] == [data.checksum("cifar-100", folder)] * 2
    for one in found:
        np.testing.assert_array_equal(one.train_images, TRAIN[0])
    assert len(list((cache / "decoded").iterdir())) == 2


def test_a_full_disk_leaves_nothing_and_says_so(folder, cache):
    with (
        files_of_at_most(20_000),
        pytest.raises(EngramError, match=r"cache.*\.npy' cannot be written: File too large\."),
    ):
        data.load("cifar-100", folder)
    assert list((cache / "decoded").iterdir()) == []
    data.load("cifar-100", folder)


def test_a_cache_that_cannot_be_written_is_named(folder, cache):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    with pytest.raises(EngramError, match="cannot be written: Not a directory"):
        data.load("cifar-100", folder)


def test_the_data_folder_is_named_by_the_environment(folder, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(folder))
    assert data.checksum("cifar-100") == data.checksum("cifar-100", folder)


def test_without_any_folder_the_cache_has_the_data(folder, cache):
    (cache / "data").mkdir(parents=True)
    (folder / PLACE).rename(cache / "data" / PLACE)
    assert len(data.load("cifar-100").train_labels) == len(TRAIN[1])


def test_the_cache_is_at_home_unless_told(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative, so ignored")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    data.load("cifar-100", folder)
    assert len(list((tmp_path / "home/.cache/engram/decoded").iterdir())) == 2


def test_what_is_not_there_says_how_to_have_it(folder):
    with pytest.raises(EngramError) as caught:
        data.load("cub-200-2011", folder)
    sentence = str(caught.value)
    for part in (str(folder), "CUB_200_2011", "--data", "engram data fetch cub-200-2011"):
        assert part in sentence


def test_an_unknown_name_lists_the_valid_ones(folder):
    with pytest.raises(
        EngramError, match=r"did you mean 'cifar-100'.*valid are awa2, cifar-100, c"
    ):
        data.load("cifar100", folder)
