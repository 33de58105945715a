"""A folder of one's own images: which image is of which task, and what a stream makes of it."""

import re
import shutil

import numpy as np
import pytest
import torch
from own_streams import folder_spec as spec
from own_streams import folder_stream as stream
from own_worlds import HOLIDAYS, SIDE, marks, saved, write_class, write_photos
from PIL import Image

from engram.errors import EngramError
from engram.lab.data import load_photos
from engram.lab.networks import ResNet
from engram.lab.protocol import run, specify

CLASSES = ["ant", "bird", "cat", "dog"]

pytestmark = pytest.mark.usefixtures("own_cache")


def shown(made, task, run=0):
    return marks(made.train(task).inputs[run])


def held(made, task):
    part = made._own_parts[task]
    return marks(made.images.test_images[part.test])


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


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("JPEG", "jpg"),
        ("MPO", "jpeg"),  # as cameras with two lenses write it
        ("PNG", "png"),
        ("GIF", "gif"),
        ("BMP", "bmp"),
        ("TIFF", "tif"),
        ("WEBP", "webp"),
        ("PNG", "jpg"),  # called something else
    ],
)
def test_images_of_every_kind_are_read(tmp_path, kind, ending):
    images = [Image.new("RGB", (9, 9), (200, 100, 50)) for _ in range(2)]
    more = {"save_all": True, "append_images": images[1:]} if kind == "MPO" else {}
    for name in ("cat/0", "cat/1", "dog/0", "dog/1"):
        path = tmp_path / "photos" / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        images[0].save(path, format=kind, **more)
    found = load_photos(tmp_path / "photos", 16).images.train_images
    assert found.shape == (4, 3, 16, 16)
    assert np.abs(found.astype(int) - np.array([200, 100, 50]).reshape(3, 1, 1)).max() <= 3


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


def one_of(folder, name):
    """Return the only image of a class, made square."""
    made = stream(folder, test_share=0.5)
    part = made._own_parts[0]
    rows = np.concatenate([part.train, part.test])
    labels = np.concatenate([part.train_labels, part.test_labels])
    (first, *_) = rows[labels == name]
    return made.images.train_images[first]


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
    tasks = {"a": {"cat": 5, "dog": 7}, "b": {"cat": 6, "eel": 4}}
    write_photos(tmp_path / "photos", tasks)
    kind = type(stream(tmp_path / "photos"))
    monkeypatch.setattr(kind, "network", lambda self: ResNet(self.classes, 2))
    (outcome,) = run(spec(tmp_path / "photos", method, heads=heads, batch_size=5), [0])
    assert outcome.failure is None
    assert all(0 <= value <= 1 for value in outcome.accuracy[-1])
