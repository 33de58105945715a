"""A download resumes, tries its mirrors, and only its checksum declares it whole."""

import dataclasses
import hashlib
import shutil
import socket
import threading
from itertools import pairwise

import numpy as np
import pytest
from download_server import Behaviour, certificate, serving
from full_disk import files_of_at_most
from official_layouts import cifar_arrays, pack, write_cifar_binary

from engram.errors import EngramError
from engram.lab import data
from engram.lab.data import download
from engram.lab.data.catalogue import CATALOGUE

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


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(download, "_PAUSE", 0.02)


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
    breaking = Behaviour(content, breaks=[1000, 2000, 0, 0])
    with pytest.raises(
        EngramError, match=r"broke off after 3,000 bytes, and 4 tries.*same command continues"
    ):
        fetch(folder, breaking)
    assert breaking.asked == [None, "bytes=1000-", "bytes=3000-", "bytes=3000-"]
    assert (folder / PART).read_bytes() == content[:3000]
    good = Behaviour(content)
    fetch(folder, good)
    assert good.asked == ["bytes=3000-"]
    check(folder)


def test_the_next_mirror_goes_on_where_the_first_stopped(folder, content):
    second = Behaviour(content)
    fetch(folder, Behaviour(content, breaks=[1000] + [0] * 9), Behaviour(status=404), second)
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
    assert len(breaking.asked) == 4


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


def test_a_server_that_is_busy_is_asked_again_after_longer_and_longer(folder, content, monkeypatch):
    monkeypatch.setattr(download, "_PAUSE", 0.1)
    busy = Behaviour(content, status=503, refusals=3)
    fetch(folder, busy)
    check(folder)
    pauses = [later - earlier for earlier, later in pairwise(busy.times)]
    assert [pause > wanted for pause, wanted in zip(pauses, (0.1, 0.2, 0.4), strict=True)] == [
        True
    ] * 3


def test_a_server_says_how_long_to_wait(folder, content):
    busy = Behaviour(content, status=429, refusals=1, headers={"Retry-After": "1"})
    fetch(folder, busy)
    assert busy.times[1] - busy.times[0] >= 1


def test_a_server_that_stays_busy_is_given_up(folder, content):
    busy = Behaviour(content, status=503)
    with pytest.raises(EngramError, match=r"answered 503 .* and 4 tries brought no more"):
        fetch(folder, busy)
    assert len(busy.asked) == 4


def test_what_will_not_change_is_asked_once(folder, content):
    for status in (403, 404, 410):
        gone = Behaviour(content, status=status)
        with pytest.raises(EngramError, match=f"answered {status}"):
            fetch(folder, gone)
        assert len(gone.asked) == 1


def test_a_server_that_gives_a_byte_at_a_time_is_given_up(folder, content):
    miser = Behaviour(content, breaks=[1] * 99)
    with pytest.raises(EngramError, match="broke off after 4 bytes, and 4 tries brought no more"):
        fetch(folder, miser)
    assert len(miser.asked) == 4


def test_a_transfer_that_breaks_off_often_goes_on_as_long_as_much_comes(folder, monkeypatch):
    weights = bytes(8_000_000)
    checksum = f"sha256:{hashlib.sha256(weights).hexdigest()}"
    small = dataclasses.replace(
        CATALOGUE["resnet18-imagenet"], bytes=len(weights), checksum=checksum
    )
    monkeypatch.setitem(CATALOGUE, "resnet18-imagenet", small)
    breaking = Behaviour(weights, breaks=[1_100_000] * 7)
    with serving(weights=breaking) as address:
        place = data.fetch("resnet18-imagenet", folder, urls=[f"{address}/weights"])
    assert place.read_bytes() == weights
    assert len(breaking.asked) == 8


def test_a_transfer_that_is_too_slow_ends_and_another_server_goes_on(folder, content, monkeypatch):
    monkeypatch.setattr(download, "_WINDOW", 0.3)
    slow, second = Behaviour(content, pace=(10, 0.05)), Behaviour(content)
    fetch(folder, slow, second)
    assert len(slow.asked) == 1
    assert second.asked[0].startswith("bytes=")
    check(folder)


def test_a_transfer_that_is_too_slow_is_told(folder, content, monkeypatch):
    monkeypatch.setattr(download, "_WINDOW", 0.3)
    with pytest.raises(
        EngramError, match=r"sent less than 1,000 bytes a second.*same command conti"
    ):
        fetch(folder, Behaviour(content, pace=(10, 0.05)))
    assert 0 < (folder / PART).stat().st_size < 2_000


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begins", "endless"),
    [(CHUNKED + b"1;", b"x"), (CHUNKED + b"0\r\n", b"X-Last: x\r\n")],
    ids=["what a piece is called", "what comes after the last"],
)
def test_an_answer_that_goes_on_without_a_byte_of_the_file_is_given_up(
    folder, content, monkeypatch, begins, endless
):
    monkeypatch.setattr(download, "_PATIENCE", 0.3)
    slow = Behaviour(content, hesitation=0.05, begins=begins, endless=endless)
    with pytest.raises(EngramError, match="brought nothing in time, and 4 tries brought no more"):
        fetch(folder, slow)
    assert len(slow.asked) == 4


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_server_that_never_comes_to_the_file_is_given_up(
    folder, content, tmp_path, monkeypatch, encrypted
):
    monkeypatch.setattr(download, "_PATIENCE", 0.3)
    slow = Behaviour(content, hesitation=0.05)
    pair = certificate(tmp_path) if encrypted else None
    monkeypatch.setenv("SSL_CERT_FILE", str(pair[1]) if pair else "")
    with (
        serving(encrypted=pair, slow=slow) as address,
        pytest.raises(EngramError, match=r"slow failed: .*, and 4 tries brought no more"),
    ):
        data.fetch("cifar-100", folder, urls=[f"{address}/slow"])
    assert len(slow.asked) == 4


@pytest.mark.parametrize(
    "url",
    [
        "http://example.invalid/x",
        "http://192.0.2.1/x",
        "ftp://127.0.0.1/x",
        "file:///etc/hostname",
        "data:,x",
        "https:",
        "http://[/",
        "x",
    ],
)
def test_only_https_is_asked(folder, url):
    with pytest.raises(EngramError, match=r"is no HTTPS address|failed: no host given"):
        data.fetch("cifar-100", folder, urls=[url])


@pytest.mark.parametrize(
    ("leads_to", "reason"),
    [
        (
            "http://example.invalid/x",
            "leads to http://example.invalid/x, which is no HTTPS address",
        ),
        ("ftp://127.0.0.1/x", "leads to ftp://127.0.0.1/x, which is no HTTPS address"),
        ("file:///etc/hostname", "answered 302"),
    ],
)
def test_a_redirection_elsewhere_is_not_followed(folder, leads_to, reason):
    with pytest.raises(EngramError, match=reason):
        fetch(folder, Behaviour(leads_to=leads_to))


def test_a_redirection_in_circles_ends(folder):
    circle = Behaviour(leads_to="/mirror0")
    with pytest.raises(EngramError, match="answered 302"):
        fetch(folder, circle)
    assert len(circle.asked) < 20


def test_redirections_stay_on_https(folder, content, tmp_path, monkeypatch):
    key, trusted = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    plain = Behaviour(content)
    with serving(plain=plain) as unsafe:
        behaviours = {
            "file": Behaviour(content),
            "moved": Behaviour(leads_to="/file"),
            "weaker": Behaviour(leads_to=f"{unsafe}/plain"),
        }
        with serving(encrypted=(key, trusted), **behaviours) as address:
            with pytest.raises(EngramError, match=r"leads to http://.*, which is no HTTPS address"):
                data.fetch("cifar-100", folder, urls=[f"{address}/weaker"])
            assert plain.asked == []
            data.fetch("cifar-100", folder, urls=[f"{address}/moved"])
    check(folder)


def test_a_server_that_nobody_vouches_for_is_not_listened_to(folder, content, tmp_path):
    with (
        serving(encrypted=certificate(tmp_path), file=Behaviour(content)) as address,
        pytest.raises(EngramError, match=r"failed: .*CERTIFICATE_VERIFY_FAILED"),
    ):
        data.fetch("cifar-100", folder, urls=[f"{address}/file"])
    assert list(folder.iterdir()) == []


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
