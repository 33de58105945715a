"""A folder of one's own images: what is refused in it, and what is passed over."""

import contextlib
import os
import struct
import zlib

import numpy as np
import pytest
from own_streams import folder_spec as spec
from own_worlds import saved, write_class, write_photos
from PIL import Image

from engram.errors import EngramError
from engram.lab.benchmarks import benchmark
from engram.lab.protocol import run, specify

pytestmark = pytest.mark.usefixtures("own_cache")


def empty(root):
    root.mkdir()


def without_folders(root):
    saved(root / "a" / "1.png", Image.new("RGB", (3, 3)))
    (root / "a" / "1.png").rename(root / "1.png")
    (root / "a").rmdir()


def one_class(root):
    write_class(root / "cat", 3, 0)


def class_of_one(root):
    write_photos(root, {"a": {"cat": 3, "dog": 1}})


def mixed_depths(root):
    write_class(root / "cat", 3, 0)
    write_class(root / "task" / "dog", 3, 1)


def beside_folders(root):
    write_photos(root, {"a": {"cat": 3, "dog": 3}})
    saved(root / "a" / "stray.png", Image.new("RGB", (3, 3)))


def empty_class(root):
    write_class(root / "cat", 3, 0)
    (root / "dog").mkdir()


def not_an_image(root):
    write_photos(root, {"a": {"cat": 3, "dog": 3}})
    (root / "a" / "cat" / "broken.jpg").write_bytes(b"no picture")


def postscript(root):
    """For which Pillow would start Ghostscript, whatever the file is called."""
    write_photos(root, {"a": {"cat": 3, "dog": 3}})
    Image.new("RGB", (9, 9)).save(root / "a" / "cat" / "x.eps")
    (root / "a" / "cat" / "x.eps").rename(root / "a" / "cat" / "x.jpg")


def endless(root):
    """An image of a few bytes that says it has 20,000 by 20,000 pixels."""
    write_photos(root, {"a": {"cat": 3, "dog": 3}})
    chunks = [(b"IHDR", struct.pack(">II", 20_000, 20_000) + bytes([8, 2, 0, 0, 0]))]
    chunks += [(b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    packed = [
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    ]
    (root / "a" / "cat" / "endless.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))


def cut_short(root):
    write_photos(root, {"a": {"cat": 3, "dog": 3}})
    path = root / "a" / "cat" / "photo 1.png"
    path.write_bytes(path.read_bytes()[:45])


def a_file(root):
    root.write_text("no folder")


def broken_throughout(root):
    write_photos(root, {"a": {"cat": 300, "dog": 3}})  # in more than one piece
    for place in ("cat/photo 0.png", "cat/photo 7.png", "dog/photo 0.png", "dog/photo 1.png"):
        (root / "a" / place).write_bytes(b"no picture")


def many_bits(root):
    write_photos(root, {"a": {"cat": 3, "dog": 3}})
    saved(root / "a" / "cat" / "deep.png", Image.fromarray(np.full((3, 3), 60_000, np.uint16)))


def test_alone(root):
    write_photos(root / "test", {"a": {"cat": 3, "dog": 3}})


test_alone.__test__ = False


def stranger_in_tests(root):
    write_photos(root / "train", {"a": {"cat": 3, "dog": 3}})
    write_photos(root / "test", {"a": {"cat": 3, "eel": 3}})


def untested_task(root):
    write_photos(root / "train", {"a": {"cat": 3}, "b": {"dog": 3}})
    write_photos(root / "test", {"a": {"cat": 3}})


def untested_class(root):
    write_photos(root / "train", {"a": {"cat": 3, "dog": 3}})
    write_photos(root / "test", {"a": {"cat": 3}})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _: None, "folder: must be followed by a folder; '.*photos' does not exist"),
        (a_file, "folder: must be followed by a folder; '.*photos' is none"),
        (empty, "photos' has no folders in it: it must have one for each class, or one for each"),
        (without_folders, "photos' has no folders in it: it must have one for each class, or one"),
        (one_class, "photos must have two classes or more to tell apart, and has one"),
        (class_of_one, "a/dog' must have two images or more, one to train on and one to test on"),
        (mixed_depths, "but 'task' in it has folders and 'cat' has none"),
        (beside_folders, "The image '.*a/stray.png' lies beside folders and is of none"),
        (empty_class, r"dog' has no images in it \(.bmp, .gif, .jpeg, .jpg"),
        (
            not_an_image,
            r"The image '.*a/cat/broken.jpg' cannot be decoded: [^/]* no format that is",
        ),
        (
            postscript,
            r"The image '.*a/cat/x.jpg' cannot be decoded: its content is of no format that",
        ),
        (
            endless,
            r"The image '.*endless.png' cannot be decoded: it has more than the 178,956,970 p",
        ),
        (cut_short, "The image '.*a/cat/photo 1.png' cannot be decoded: [^/]*$"),
        (many_bits, "The image '.*deep.png' cannot be decoded: it has more than 8 bits a channel"),
        (
            broken_throughout,
            r"^4 of 303 images cannot be decoded, in '.*photos/a': 'cat/photo 0.png' \([^)]*\), "
            r"'cat/photo 7.png' \([^)]*\), 'dog/photo 0.png' \([^)]*\), 1 more\.$",
        ),
        (test_alone, "photos' has a folder test, but no folder train beside it"),
        (stranger_in_tests, "test/a/eel' has test images of a class that '.*train/a' has no train"),
        (untested_task, "train/b/dog' has training images of a class that '.*test/b' has no test"),
        (untested_class, "train/a/dog' has training images .* '.*test/a' has no test images of"),
    ],
)
def test_bad_folders_are_refused_in_one_sentence(tmp_path, make, sentence):
    make(tmp_path / "photos")
    with pytest.raises(EngramError, match=sentence) as caught:
        spec(tmp_path / "photos")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"heads": "by-task"}, "heads must be shared where a task has a single class, as 'trip'"),
        ({"sise": "8"}, "did you mean 'size'"),
        ({"classes_per_task": "2"}, "classes_per_task must not be given where the folders are tas"),
        ({"size": "4"}, "size must be a whole number below 2.31 and at least 16"),
        ({"test_share": "1"}, "test_share must be a finite number and above 0 and at most 0.9"),
        ({"batch_size": "15"}, "batch_size must be at most the 14 examples of a task, not 15"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(photos, overrides, sentence):
    with pytest.raises(EngramError, match=sentence):
        run(spec(photos, **overrides), [0])


def test_what_is_passed_over_is_told_once_by_its_ending(photos, caplog):
    cats = photos / "2 beach" / "cat"
    for number in range(3, 7):
        (cats / f"photo {number}.png").rename(cats / f"photo {number}.HEIC")
    (cats / "LICENCE").touch()
    (photos / "trip" / "diary.txt").touch()
    (photos / "trip" / "ant" / "edited").mkdir()
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        (cats / name).touch()
    for method in ("van", "mega-ii"):
        spec(photos, method)
    assert caplog.messages == [
        f"{photos}: passed over: 4 .heic, 1 .txt, 1 edited/, 1 without an ending; JPEG, PNG, GIF, "
        "BMP, TIFF and WebP in the folders of classes are read."
    ]


def test_a_link_that_leads_nowhere_is_told_by_its_name(photos, caplog):
    (photos / "2023").symlink_to(photos.parent / "a disk that is not here")
    spec(photos)
    assert "passed over: 1 2023 (a link to nowhere); JPEG" in caplog.text


def test_what_lies_beside_train_and_test_is_told(tmp_path, caplog):
    for part in ("train", "test", "val"):
        write_photos(tmp_path / "photos" / part, {"a": {"cat": 8, "dog": 8}})
    spec(tmp_path / "photos")
    assert "passed over: 1 val/; JPEG" in caplog.text


def test_nothing_is_told_where_nothing_is_passed_over(photos, caplog):
    spec(photos)
    assert not caplog.messages


def test_there_are_no_more_tasks_than_folders_and_none_to_tune_on(photos):
    with pytest.raises(EngramError, match="tasks must be at most 3 for folder-photos, not 4"):
        specify(f"folder:{photos}", "van", tasks=4, overrides={"size": "16"})
    with pytest.raises(EngramError, match="folder-photos has no tasks to tune on apart from"):
        specify(f"folder:{photos}", "van", split="tuning")
    with pytest.raises(EngramError, match="folder: must be followed by the path"):
        benchmark("folder:")


def test_no_program_is_started_for_an_image(tmp_path, monkeypatch):
    """Pillow finds Ghostscript by its name: this one leaves a mark."""
    mark, program = tmp_path / "started", tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    postscript(tmp_path / "photos")
    with Image.open(tmp_path / "photos/a/cat/x.jpg") as image, contextlib.suppress(OSError):
        image.load()
    assert mark.exists()  # or else this test would find nothing
    mark.unlink()
    with pytest.raises(EngramError, match=r"The image '.*a/cat/x.jpg' cannot be decoded"):
        spec(tmp_path / "photos")
    assert not mark.exists()
