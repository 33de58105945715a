"""A folder of one's own images: which image is of which task, and what a stream makes of it."""

import re
import shutil

import numpy as np
import pytest
import torch
from own_worlds import SIDE, marks, write_class, write_photos
from PIL import Image

from engram.errors import EngramError
from engram.models import ResNet
from engram.protocol import run, specify
from engram.streams import benchmark
from engram.streams._folder import FolderStream

HOLIDAYS = {
    "2 beach": {"cat": 10, "dog": 5},
    "10 city": {"bird": 7, "cat": 10},
    "trip": {"ant": 4},
}
CLASSES = ["ant", "bird", "cat", "dog"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path / "photos", HOLIDAYS)


def stream(folder, seeds=(0,), **settings):
    made = benchmark(f"folder:{folder}")
    chosen = made.settings(**{"size": SIDE, **settings})
    sized = made.sized(chosen)
    return made.build(seeds, sized.paper_tasks, sized.most_examples, settings=chosen)


def spec(folder, method="mega-ii", **overrides):
    texts = {"size": SIDE, **overrides}
    return specify(
        f"folder:{folder}", method, overrides={name: str(value) for name, value in texts.items()}
    )


def shown(made, task, run=0):
    return marks(made.train(task).inputs[run])


def held(made, task):
    part = made._own_parts[task]
    return marks(made._images.test_images[part.test])


def test_folders_are_tasks_in_natural_order_and_every_image_is_in_one_half(photos):
    made = stream(photos)
    assert made.tasks == 3
    for task, classes in enumerate(HOLIDAYS.values()):
        wanted = {(CLASSES.index(n), i, task) for n, count in classes.items() for i in range(count)}
        train, test = shown(made, task), held(made, task)
        assert len(train) + len(test) == len(wanted)
        assert set(train) | set(test) == wanted


def test_a_share_of_every_class_is_held_out_but_at_least_one_and_not_all(tmp_path):
    write_photos(tmp_path / "photos", {"only": {"many": 20, "few": 2, "some": 9}})
    for share, wanted in [(0.2, [1, 4, 2]), (0.01, [1, 1, 1]), (0.9, [1, 18, 8])]:
        test = held(stream(tmp_path / "photos", test_share=share), 0)
        assert np.bincount([name for name, _, _ in test]).tolist() == wanted


def test_every_run_is_tested_on_the_same_images_and_trained_in_an_order_of_its_own(photos):
    made = stream(photos, seeds=(0, 1))
    examples = made.train(0)
    first, second = (marks(inputs) for inputs in examples.inputs)
    assert first != second
    assert sorted(first) == sorted(second)
    assert held(made, 0) == held(stream(photos, seeds=(5,)), 0)


def test_folders_that_are_classes_are_dealt_out_in_natural_order(tmp_path):
    for place, name in enumerate(["b 10", "b 9", "A", "c", "d"]):
        write_class(tmp_path / "photos" / name, 3, place)
    made = stream(tmp_path / "photos")
    found = [{name for name, _, _ in shown(made, task)} for task in range(3)]
    assert found == [{2, 1}, {0, 3}, {4}]
    assert stream(tmp_path / "photos", classes_per_task=4).tasks == 2


def test_a_class_that_returns_keeps_its_output(photos):
    made = stream(photos)
    assert made.classes == 4
    for task in range(3):
        inputs, labels = made.train(task)
        assert labels[0].tolist() == [name for name, _, _ in marks(inputs[0])]


def test_in_the_shared_head_the_classes_met_so_far_compete(photos):
    made = stream(photos, seeds=(0, 1))
    met = set()
    for task, classes in enumerate(HOLIDAYS.values()):
        met |= {CLASSES.index(name) for name in classes}
        examples = made.train(task)
        wanted = torch.tensor([number in met for number in range(4)])
        for seen in range(task + 1):
            given = made.task_outputs(seen)
            assert given is None if len(met) == 4 else (given == wanted).all()
        given = made.batch(examples.inputs, examples.labels).outputs
        assert given is None if len(met) == 4 else (given == wanted).all()


def test_which_classes_compete_does_not_depend_on_what_was_served_before(photos):
    made = stream(photos)  # as where a run is resumed
    made.train(1)
    met = torch.tensor([[name in ("bird", "cat", "dog") for name in CLASSES]])
    assert (made.task_outputs(0) == met).all()


def test_heads_by_task_give_every_task_outputs_of_its_own(tmp_path):
    tasks = {"a": {"cat": 3, "dog": 3}, "b": {"cat": 3, "eel": 3}}
    made = stream(write_photos(tmp_path / "photos", tasks), heads="by-task")
    assert made.classes == 4
    for task in range(2):
        examples = made.train(task)
        wanted = torch.tensor([number // 2 == task for number in range(4)])
        assert set(examples.labels.flatten().tolist()) == {2 * task, 2 * task + 1}
        assert (made.batch(*examples).outputs == wanted).all()
        assert (made.task_outputs(task) == wanted).all()


def test_images_that_are_set_apart_are_all_the_tests_there_are(tmp_path):
    write_photos(tmp_path / "photos" / "train", {"a": {"cat": 3, "dog": 3}, "b": {"cat": 2}})
    write_photos(tmp_path / "photos" / "test", {"a": {"cat": 5, "dog": 1}, "b": {"cat": 1}})
    made = stream(tmp_path / "photos")
    assert [len(shown(made, task)) for task in range(2)] == [6, 2]
    assert sorted(held(made, 0)) == [*((0, image, 0) for image in range(5)), (1, 0, 0)]
    (batch,) = made.test(1)
    assert batch.labels.tolist() == [0]


def test_inputs_are_standardised_by_the_first_task_alone(tmp_path):
    source = np.random.default_rng(0)
    for task, scale in (("1", 90), ("2", 250)):
        for name in ("cat", "dog"):
            folder = tmp_path / "photos" / task / name
            folder.mkdir(parents=True)
            for number in range(6):
                noise = source.integers(0, scale, (SIDE, SIDE, 3), dtype=np.uint8)
                Image.fromarray(noise).save(folder / f"{number}.png")
    made = stream(tmp_path / "photos")
    first, later = (made.normalise(made.train(task).inputs) for task in range(2))
    assert first.mean((0, 1, 3, 4)).tolist() == pytest.approx([0] * 3, abs=1e-5)
    assert first.std((0, 1, 3, 4), correction=0).tolist() == pytest.approx([1] * 3, abs=1e-5)
    assert (later.mean((0, 1, 3, 4)) > 1).all()


def saved(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path.parent.parent


def one_of(folder, name):
    """Return the only image of a class, made square."""
    made = stream(folder, test_share=0.5)
    part = made._own_parts[0]
    rows = np.concatenate([part.train, part.test])
    labels = np.concatenate([part.train_labels, part.test_labels])
    (first, *_) = rows[labels == name]
    return made._images.train_images[first]


@pytest.mark.parametrize(
    ("mode", "colour", "options"),
    [
        ("L", 40, {}),
        ("1", 1, {}),
        ("P", 0, {"transparency": 0}),
        ("RGBA", (9, 9, 9, 0), {}),
        ("LA", (7, 100), {}),
    ],
)
def test_whatever_an_image_is_it_becomes_rgb(tmp_path, mode, colour, options):
    write_class(tmp_path / "photos" / "other", 2, 1)
    for number in range(2):
        path = tmp_path / "photos" / "a" / f"{number}.png"
        saved(path, Image.new(mode, (7, 3), colour), **options)
    assert one_of(tmp_path / "photos", 0).shape == (3, SIDE, SIDE)


def test_a_photo_is_turned_as_its_camera_says_and_squashed(tmp_path):
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, :40] = 200  # the left half is light
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned clockwise: what is left goes to the top
    for number in range(2):
        path = tmp_path / "photos" / "a" / f"{number}.JPG"
        saved(path, Image.fromarray(pixels), exif=turned)
    write_class(tmp_path / "photos" / "b", 2, 1)
    image = one_of(tmp_path / "photos", 0)
    assert image[:, : SIDE // 2 - 1].min() > 150
    assert image[:, SIDE // 2 + 1 :].max() < 50


def test_a_fine_pattern_is_smoothed_where_it_shrinks(tmp_path):
    board = np.indices((64, 64)).sum(0) % 2 * 255
    for name in "ab":
        for number in range(2):
            path = tmp_path / "photos" / name / f"{number}.png"
            saved(path, Image.fromarray(board.astype(np.uint8)))
    inner = one_of(tmp_path / "photos", 0)[:, 1:-1, 1:-1].astype(int)
    assert abs(inner - 127).max() < 10


def test_a_result_is_filed_under_the_content_and_not_under_the_path(photos, tmp_path):
    identity = spec(photos).identity()
    assert re.fullmatch(r"folder-photos-[0-9a-f]{10}", identity["benchmark"])
    assert str(tmp_path) not in str(identity)
    elsewhere = shutil.copytree(photos, tmp_path / "elsewhere" / "Photos")
    assert spec(elsewhere).identity() == identity
    assert spec(photos, test_share=0.3).identity() != identity
    assert spec(photos, size=20).identity() != identity
    assert spec(photos, heads="shared").identity() == identity
    write_class(elsewhere / "trip" / "bee", 2, 1)
    assert spec(elsewhere).identity()["benchmark"] != identity["benchmark"]


def test_a_store_s_name_has_the_usual_settings_but_no_data(photos):
    identity = spec(photos).identity()
    again = specify(identity["benchmark"], "mega-ii")
    assert again.identity()["settings"] == identity["settings"]
    assert again.identity()["data"] == identity["data"]
    with pytest.raises(EngramError, match="not where the data is: that is given as folder:PATH"):
        run(again, [0])


def test_the_network_suits_the_size(photos):
    assert stream(photos).network().size == ResNet(4).size
    assert not stream(photos, size=64).network().large_images
    assert stream(photos, size=72).network().large_images


@pytest.mark.parametrize(
    ("method", "heads"),
    [("mega-ii", "shared"), ("gem", "by-task"), ("icarl", "by-task"), ("multi-task", "shared")],
)
def test_every_method_learns_a_folder(tmp_path, method, heads, monkeypatch):
    monkeypatch.setattr(FolderStream, "network", lambda self: ResNet(self.classes, 2))
    tasks = {"a": {"cat": 5, "dog": 7}, "b": {"cat": 6, "eel": 4}}
    write_photos(tmp_path / "photos", tasks)
    (outcome,) = run(spec(tmp_path / "photos", method, heads=heads, batch_size=5), [0])
    assert outcome.failure is None
    assert all(0 <= value <= 1 for value in outcome.accuracy[-1])


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
        (not_an_image, r"The image '.*a/cat/broken.jpg' cannot be decoded: [^/]* no known format"),
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
