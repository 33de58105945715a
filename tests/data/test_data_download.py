"""A download resumes, tries its mirrors, and only its checksum declares it whole."""

import dataclasses
import hashlib
import shutil
import socket
import threading

import numpy as np
import pytest
from download_server import Behaviour, serving
from full_disk import files_of_at_most
from official_layouts import cifar_arrays, pack, write_cifar_binary

from engram import data
from engram.data._catalogue import CATALOGUE
from engram.errors import EngramError

TRAIN, TEST = cifar_arrays(30, seed=1), cifar_arrays(12, seed=2)
PART = "cifar-100-binary.tar.gz.part"


@pytest.fixture
def content(tmp_path, monkeypatch):
    """Return the bytes of an archive that stands in for the official one."""
    made = tmp_path / "made"
    made.mkdir()
    archive = pack(write_cifar_binary(made, TRAIN, TEST), "tar").read_bytes()
    source = CATALOGUE["cifar-100"]
    checksum = f"md5:{hashlib.md5(archive).hexdigest()}"
    small = dataclasses.replace(source, bytes=len(archive), unpacked=200_000, checksum=checksum)
    monkeypatch.setitem(CATALOGUE, "cifar-100", small)
    return archive


def fetch(folder, *behaviours, progress=None):
    named = {f"mirror{number}": behaviour for number, behaviour in enumerate(behaviours)}
    with serving(**named) as address:
        urls = [f"{address}/{name}" for name in named]
        return data.fetch("cifar-100", folder, urls=urls, progress=progress)


def check(folder):
    assert [path.name for path in folder.iterdir()] == ["cifar-100-binary"]
    found = data.load("cifar-100", folder)
    np.testing.assert_array_equal(found.train_images, TRAIN[0])
    np.testing.assert_array_equal(found.test_labels, TEST[1])


def test_what_is_fetched_can_be_loaded_and_is_not_fetched_again(folder, content):
    good, told = Behaviour(content), []
    place = fetch(folder, good, progress=lambda here, total: told.append((here, total)))
    assert place == folder / "cifar-100-binary"
    assert told[-1] == (len(content), len(content))
    assert [here for here, _ in told] == sorted(here for here, _ in told)
    check(folder)
    assert fetch(folder, good) == place
    assert good.asked == [None]


def test_a_folder_is_made_where_there_is_none(tmp_path, content):
    check(fetch(tmp_path / "new" / "folder", Behaviour(content)).parent)


def test_a_transfer_that_breaks_off_goes_on_where_it_stopped(folder, content):
    breaking = Behaviour(content, breaks=[1000, 2000, 0])
    with pytest.raises(EngramError, match=r"broke off after 3,000 bytes.*same command continues"):
        fetch(folder, breaking)
    assert breaking.asked == [None, "bytes=1000-", "bytes=3000-"]
    assert (folder / PART).read_bytes() == content[:3000]
    good = Behaviour(content)
    fetch(folder, good)
    assert good.asked == ["bytes=3000-"]
    check(folder)


def test_the_next_mirror_goes_on_where_the_first_stopped(folder, content):
    second = Behaviour(content)
    fetch(folder, Behaviour(content, breaks=[1000, 0]), Behaviour(content, status=404), second)
    assert second.asked == ["bytes=1000-"]
    check(folder)


def test_a_server_that_does_not_know_ranges_starts_over(folder, content):
    (folder / PART).write_bytes(content[:500])
    fetch(folder, Behaviour(content, ranges=False))
    check(folder)


def test_a_server_that_starts_over_and_breaks_off_is_given_up(folder, content):
    breaking = Behaviour(content, ranges=False, breaks=[1000] * 99)
    with pytest.raises(EngramError, match="broke off after 1,000 bytes"):
        fetch(folder, breaking)
    assert len(breaking.asked) == 2


def test_a_wrong_checksum_is_refused_and_leaves_nothing(folder, content):
    wrong = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(EngramError, match="gave a file with another checksum"):
        fetch(folder, Behaviour(wrong))
    assert list(folder.iterdir()) == []
    fetch(folder, Behaviour(wrong), Behaviour(content))
    check(folder)


def test_what_was_left_by_something_else_is_asked_for_again(folder, content):
    for left in (b"x" * 700, b"x" * len(content), b"x" * 2 * len(content)):
        (folder / PART).write_bytes(left)
        fetch(folder, Behaviour(content))
        check(folder)
        shutil.rmtree(folder / "cifar-100-binary")


def test_a_whole_file_that_was_not_yet_unpacked_is_used(folder, content):
    (folder / PART).write_bytes(content)
    fetch(folder, Behaviour(content))
    check(folder)


@pytest.mark.parametrize("declared", [1, 5_000])
def test_a_server_that_declares_less_than_there_is(folder, content, declared):
    with pytest.raises(EngramError, match="gave a file with another checksum"):
        fetch(folder, Behaviour(content, declared=declared))
    assert list(folder.iterdir()) == []


def test_a_server_that_declares_more_than_there_is(folder, content):
    fetch(folder, Behaviour(content, declared=len(content) + 100))  # the checksum decides
    check(folder)


def test_a_server_that_offers_far_too_much_is_not_listened_to(folder, content):
    with pytest.raises(EngramError, match="offers 1,000,000,000 bytes, more than the"):
        fetch(folder, Behaviour(content, declared=10**9))
    assert list(folder.iterdir()) == []


def test_a_server_that_sends_far_too_much_is_stopped(folder, content):
    with pytest.raises(EngramError, match=r"sent more than the [\d,]+ bytes that are possible"):
        fetch(folder, Behaviour(content * 3, declared="nothing"))
    assert [path.stat().st_size for path in folder.iterdir()] == [0]


def test_a_server_that_declares_nothing(folder, content):
    fetch(folder, Behaviour(content, declared="nothing"))
    check(folder)


def test_a_server_that_answers_with_other_bytes(folder, content):
    (folder / PART).write_bytes(content[:500])
    with pytest.raises(EngramError, match="answered with other bytes than it was asked for"):
        fetch(folder, Behaviour(content, shift=7))
    assert (folder / PART).read_bytes() == content[:500]


def test_a_server_that_is_not_there(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(EngramError, match=r"failed: .*refused"):
        data.fetch("cifar-100", folder, urls=[f"http://127.0.0.1:{port}/"])


def test_an_answer_that_is_none(folder, content):
    with pytest.raises(EngramError, match="answered 500"):
        fetch(folder, Behaviour(content, status=500))


def test_a_disk_with_too_little_room_is_told_before_anything_is_asked(folder, content, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 200_000))
    server = Behaviour(content)
    with pytest.raises(EngramError, match=r"needs 0\.0 GB in .*data', where 0\.0 GB are free"):
        fetch(folder, server)
    assert server.asked == []


def test_a_disk_that_fills_up_is_told_and_the_rest_comes_later(folder, content):
    with (
        files_of_at_most(10_000),
        pytest.raises(EngramError, match=r"\.part' cannot be written: File too large"),
    ):
        fetch(folder, Behaviour(content))
    assert (folder / PART).read_bytes() == content[:10_000]
    good = Behaviour(content)
    fetch(folder, good)
    assert good.asked == ["bytes=10000-"]
    check(folder)


def test_a_disk_that_fills_up_while_unpacking_leaves_no_half_folder(folder, content):
    (folder / PART).write_bytes(content)
    with (
        files_of_at_most(50_000),
        pytest.raises(EngramError, match="cannot be unpacked: File too large"),
    ):
        fetch(folder, Behaviour(content))
    assert [path.name for path in folder.iterdir()] == [PART]
    fetch(folder, Behaviour(content))
    check(folder)


def test_a_folder_that_is_not_whole_is_not_written_over(folder, content):
    (folder / "cifar-100-binary").mkdir()
    with pytest.raises(EngramError, match="is not a whole cifar-100: move it away first"):
        fetch(folder, Behaviour(content))


def test_two_that_fetch_at_once_download_once(folder, content):
    server = Behaviour(content)
    with serving(mirror=server) as address:
        threads = [
            threading.Thread(
                target=data.fetch,
                args=("cifar-100", folder),
                kwargs={"urls": [f"{address}/mirror"]},
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert server.asked == [None]
    check(folder)


def test_a_file_that_is_no_archive_is_kept_as_it_is(folder, monkeypatch):
    weights = b"weights"
    checksum = f"sha256:{hashlib.sha256(weights).hexdigest()}"
    small = dataclasses.replace(
        CATALOGUE["resnet18-imagenet"], bytes=len(weights), checksum=checksum
    )
    monkeypatch.setitem(CATALOGUE, "resnet18-imagenet", small)
    with serving(weights=Behaviour(weights)) as address:
        place = data.fetch("resnet18-imagenet", folder, urls=[f"{address}/weights"])
    assert place == folder / "resnet18-f37072fd.pth"
    assert place.read_bytes() == weights
    assert list(folder.iterdir()) == [place]


def test_sources_tell_where_they_are(folder, content):
    before = {source.name: source.present for source in data.sources(folder)}
    assert before == {
        "cifar-100": None,
        "cub-200-2011": None,
        "awa2": None,
        "resnet18-imagenet": None,
    }
    fetch(folder, Behaviour(content))
    (folder / "AwA2-data.zip").touch()
    after = {source.name: source.present for source in data.sources(folder)}
    assert after["cifar-100"] == folder / "cifar-100-binary"
    assert after["awa2"] == folder / "AwA2-data.zip"


def test_official_addresses_are_encrypted_and_sums_are_well_formed():
    for source in CATALOGUE.values():
        assert all(url.startswith("https://") for url in source.urls)
        kind, _, digest = source.checksum.partition(":")
        assert len(digest) == 2 * hashlib.new(kind).digest_size
