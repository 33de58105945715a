"""An archive is unpacked whole or not at all, and never reaches outside its folder."""

import gzip
import io
import stat
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from official_layouts import cifar_arrays, pack, write_cifar_binary

from engram.errors import EngramError
from engram.lab import data
from engram.lab.data import unpack

FILES = {"birds/a.txt": b"first", "birds/deep/er/b.txt": b"second", "beside.txt": b"not asked for"}


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def tar(path, files=FILES):
    return tar_of(path, [(tarfile.TarInfo(name), content) for name, content in files.items()])


def zipped(path, files=FILES):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


WRITERS = pytest.mark.parametrize("write", [tar, zipped])


def tree(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@WRITERS
def test_one_folder_is_unpacked_and_nothing_else(tmp_path, write):
    into = tmp_path / "into"
    place = unpack(write(tmp_path / "archive"), into, "birds", limit=24)
    assert place == into / "birds"
    assert (place / "a.txt").read_bytes() == b"first"
    assert (place / "deep/er/b.txt").read_bytes() == b"second"
    folders = {"birds", "birds/deep", "birds/deep/er"}
    assert tree(into) == folders | {"birds/a.txt", "birds/deep/er/b.txt"}


def test_names_with_a_leading_dot_and_folders_are_fine(tmp_path):
    folder = tarfile.TarInfo("./birds")
    folder.type = tarfile.DIRTYPE
    archive = tar_of(tmp_path / "a", [(folder, b""), (tarfile.TarInfo("./birds/a.txt"), b"first")])
    assert (unpack(archive, tmp_path / "into", "birds", limit=9) / "a.txt").exists()


@WRITERS
@pytest.mark.parametrize(
    "name", ["/birds/a", "../a", "birds/../../a", "birds\\..\\a", "C:birds", "beside/../../a"]
)
def test_a_path_that_escapes_is_refused(tmp_path, write, name):
    archive = write(tmp_path / "archive", {"birds/good.txt": b"", name: b"hostile"})
    before = tree(tmp_path)
    with pytest.raises(EngramError, match="is refused: it has the path"):
        unpack(archive, tmp_path / "into", "birds", limit=1000)
    assert tree(tmp_path) - before == {"into"}
    assert tree(tmp_path / "into") == set()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
@pytest.mark.parametrize("name", ["birds/link", "beside"])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind, name):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    archive = tar_of(tmp_path / "a", [(tarfile.TarInfo("birds/a.txt"), b"first"), (member, b"")])
    with pytest.raises(EngramError, match="is a link or a device, not a file"):
        unpack(archive, tmp_path / "into", "birds", limit=1000)
    assert tree(tmp_path / "into") == set()


def test_links_in_a_zip_are_refused(tmp_path):
    link = zipfile.ZipInfo("birds/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive = zipped(tmp_path / "a", {"birds/a.txt": b"first", link: b"/etc/passwd"})
    with pytest.raises(EngramError, match="is a link or a device, not a file"):
        unpack(archive, tmp_path / "into", "birds", limit=1000)
    assert tree(tmp_path / "into") == set()


@WRITERS
def test_an_archive_that_grows_too_large_is_refused(tmp_path, write):
    archive = write(tmp_path / "archive", {"birds/a": bytes(600_000), "birds/b": bytes(600_000)})
    assert archive.stat().st_size < 10_000
    with pytest.raises(EngramError, match="unpacks to over 1,000,000 bytes"):
        unpack(archive, tmp_path / "into", "birds", limit=1_000_000)
    assert tree(tmp_path / "into") == set()


@WRITERS
def test_what_is_passed_over_counts_too(tmp_path, write):
    archive = write(tmp_path / "archive", {"birds/a": b"first", "beside": bytes(1_000_000)})
    unpack(archive, tmp_path / "large", "birds", limit=1_000_005)
    with pytest.raises(EngramError, match="unpacks to over 1,000,004 bytes"):
        unpack(archive, tmp_path / "into", "birds", limit=1_000_004)
    assert tree(tmp_path / "into") == set()


def _pax(path, fields, name="birds/b", content=b""):
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("birds/a")
        archive.addfile(member, io.BytesIO())
        member = tarfile.TarInfo(name)
        member.size, member.pax_headers = len(content), fields
        archive.addfile(member, io.BytesIO(content))
    return path


def test_what_a_tar_tells_of_its_entries_counts(tmp_path):
    archive = _pax(tmp_path / "a", {"comment": "x" * 3_000_000})
    assert archive.stat().st_size < 10_000
    unpack(archive, tmp_path / "large", "birds", limit=3_100_000)
    with pytest.raises(EngramError, match="unpacks to over 1,000,000 bytes"):
        unpack(archive, tmp_path / "into", "birds", limit=1_000_000)


@pytest.mark.parametrize("name", ["birds/sparse", "beside"])
def test_a_sparse_file_counts_as_large_as_it_is(tmp_path, name):
    """A thousand million bytes that are none of them in the archive."""
    fields = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": name,
        "GNU.sparse.realsize": "1000000000",
    }
    archive = _pax(tmp_path / "a", fields, name, b"1\n0\n1\n".ljust(512, b"\0") + b"x")
    with pytest.raises(EngramError, match="unpacks to over 1,000,000 bytes"):
        unpack(archive, tmp_path / "into", "birds", limit=1_000_000)
    assert tree(tmp_path / "into") == set()


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.SYMTYPE])
def test_a_folder_or_a_link_that_says_it_is_large_is_refused(tmp_path, kind):
    member = tarfile.TarInfo("birds/b")
    member.type, member.linkname, member.size = kind, "a", 10**9
    with tarfile.open(tmp_path / "a", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("birds/a"), io.BytesIO())
        archive.addfile(member)
    with pytest.raises(EngramError, match=r"unpacks to over 1,000 bytes|is a link"):
        unpack(tmp_path / "a", tmp_path / "into", "birds", limit=1000)
    assert tree(tmp_path / "into") == set()


def test_an_entry_of_less_than_nothing_gives_no_room(tmp_path):
    member = tarfile.TarInfo("beside")
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 4 + (-(10**6)).to_bytes(8, "big", signed=True)
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 32)
    rest = tar(tmp_path / "rest", {"birds/a": bytes(2000)})
    with gzip.open(rest) as file:
        content = bytes(header) + file.read()
    with gzip.open(tmp_path / "a", "wb") as file:
        file.write(content)
    with pytest.raises(EngramError, match=r"is damaged|unpacks to over"):
        unpack(tmp_path / "a", tmp_path / "into", "birds", limit=1000)


@WRITERS
def test_too_many_entries_are_refused(tmp_path, write, monkeypatch):
    monkeypatch.setattr("engram.lab.data.archives._MOST_ENTRIES", 2)
    with pytest.raises(EngramError, match="has more than 2 entries"):
        unpack(write(tmp_path / "archive"), tmp_path / "into", "birds", limit=1000)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_comes_twice_is_refused(tmp_path):
    archive = tar_of(tmp_path / "a", [(tarfile.TarInfo("birds/a"), b"one")] * 2)
    with pytest.raises(EngramError, match="cannot be unpacked: File exists"):
        unpack(archive, tmp_path / "into", "birds", limit=1000)
    assert tree(tmp_path / "into") == set()


@WRITERS
@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "text"])
def test_a_damaged_archive_is_named_and_leaves_nothing(tmp_path, write, damage):
    archive = write(tmp_path / "archive", {"birds/a": bytes(range(256)) * 400})
    content = archive.read_bytes()
    half = len(content) // 2
    changed = content[:half] + bytes([content[half] ^ 255]) + content[half + 1 :]
    damaged = {"cut": content[:half], "changed": changed, "empty": b"", "text": b"no archive"}
    archive.write_bytes(damaged[damage])
    with pytest.raises(EngramError, match=r"archive' (is damaged|cannot be unpacked)") as caught:
        unpack(archive, tmp_path / "into", "birds", limit=1_000_000)
    assert "\n" not in str(caught.value)
    assert tree(tmp_path / "into") == set()


@WRITERS
def test_an_archive_of_something_else_is_refused(tmp_path, write):
    with pytest.raises(EngramError, match="has no folder 'fish' in it"):
        unpack(write(tmp_path / "archive"), tmp_path / "into", "fish", limit=1000)
    assert tree(tmp_path / "into") == set()


def test_two_that_unpack_at_once_both_end_well(tmp_path, monkeypatch):
    archive, both = tar(tmp_path / "archive"), threading.Barrier(2, timeout=30)
    rename = Path.rename

    def wait(*paths):
        both.wait()  # each has its files before either is renamed
        return rename(*paths)

    monkeypatch.setattr(Path, "rename", wait)
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(unpack(archive, tmp_path / "into", "birds", limit=1000))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "into/birds"] * 2
    assert {path.name for path in (tmp_path / "into").iterdir()} == {"birds"}


def test_a_hostile_archive_in_the_data_folder_is_refused(folder, cache):
    place = write_cifar_binary(folder, cifar_arrays(3, 1), cifar_arrays(3, 2))
    archive = pack(place, "tar")
    tar(archive, {"cifar-100-binary/train.bin": b"", "cifar-100-binary/../../../evil": b""})
    with pytest.raises(EngramError, match="is refused: it has the path"):
        data.load("cifar-100", folder)
    assert not [path for path in cache.rglob("*") if path.is_file()]
