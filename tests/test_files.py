"""Files that are written whole or not at all, whatever fails and whoever else writes."""

import os
import stat
import threading

import pytest

from engram.errors import EngramError
from engram.files import leftovers, replacement, whole_file


def test_a_file_is_replaced_in_folders_that_are_made(tmp_path):
    path = tmp_path / "new" / "folder" / "page.svg"
    for text in ("first", "second"):
        with whole_file(path) as part:
            assert part.suffix == ".svg"  # by which some choose a format
            assert part.read_bytes() == b""
            part.write_text(text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def write(kind, path, text, error=None):
    with kind(path) as part:
        part.write_text(text)
        if error:
            raise error


@pytest.mark.parametrize("kind", [whole_file, replacement])
def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path, kind):
    path = tmp_path / "page"
    path.write_text("old")
    with pytest.raises(KeyError):
        write(kind, path, "half", KeyError())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", ["open", "fsync", "replace"])
def test_a_call_of_the_system_that_fails_is_told(tmp_path, monkeypatch, fault):
    path = tmp_path / "page"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fault, fail)
    with pytest.raises(EngramError, match=r"page' cannot be written: No space left on device\.$"):
        write(whole_file, path, "new")
    with pytest.raises(OSError, match="No space left"):
        write(replacement, path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", "/", "..", "x" * 300, "text/x"])
def test_what_is_no_name_of_a_file_is_told(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("kept")
    with pytest.raises(EngramError, match="cannot be written"), whole_file(type(tmp_path)(name)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_the_end(
    tmp_path, monkeypatch
):
    done = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)

        def noted(*arguments, name=name, call=call):
            folder = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            done.append("fsync of the folder" if folder else name)
            call(*arguments)

        monkeypatch.setattr(os, name, noted)
    with whole_file(tmp_path / "page") as part:
        part.write_text("new")
    assert done == ["fsync", "replace", "fsync of the folder"]


def test_threads_that_write_one_file_leave_one_of_theirs_whole(tmp_path):
    path, failures = tmp_path / "page", []
    barrier = threading.Barrier(8)

    def compete(letter):
        try:
            for _ in range(10):
                barrier.wait()
                write(whole_file, path, letter * 10_000)
        except Exception as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=compete, args=[letter]) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    text = path.read_text()
    assert text == text[0] * 10_000
    assert list(tmp_path.iterdir()) == [path]


def test_the_rights_are_those_asked_for_less_the_mask(tmp_path):
    path, mask = tmp_path / "page", os.umask(0o022)
    try:
        for mode, rights in ((0o666, 0o644), (0o600, 0o600)):
            with replacement(path, mode):
                pass
            assert stat.S_IMODE(path.stat().st_mode) == rights
    finally:
        os.umask(mask)


def test_what_a_killed_process_left_is_found_and_nothing_of_other_files(tmp_path):
    path, other = tmp_path / "a[b].txt", tmp_path / "a[b].c.txt"
    with replacement(path) as part, replacement(other):
        assert list(leftovers(path)) == [part]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_what_is_no_file_is_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(EngramError, match="pipe' cannot be written: what is there is no file"):
        write(whole_file, path, "new")
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]
