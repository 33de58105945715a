"""Images of training batches that are mirrored and moved: what is drawn, and where it is not."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from dying_checkpoints import Dying, Killed, checkpoint
from own_worlds import write_photos
from scipy import stats
from tiny_worlds import run_whole, same_bits

from engram.errors import EngramError
from engram.lab.benchmarks import from_tensors
from engram.lab.benchmarks.augmentation import Augmentation, AugmentationSettings
from engram.lab.methods import method_entry, names
from engram.lab.protocol import build_stream, run, specify

SIDE, CROP = 9, 2
ALL = {"flip": "true", "crop": str(CROP)}


def images(count=12, tasks=2):
    """Return tasks of images in which no two pixels are alike, nor any two images."""
    every = np.arange(1, 1 + tasks * count * 3 * SIDE * SIDE, dtype=np.float32)
    labels = np.arange(count) % 2
    return [(1e-3 * part, labels) for part in every.reshape(tasks, count, 3, SIDE, SIDE)]


@pytest.fixture(scope="module", autouse=True)
def _known():
    from_tensors(images(), name="pictures")
    from_tensors([(np.eye(4, dtype=np.float32).repeat(3, 0), np.arange(12) % 2)], name="vectors")


def spec_of(method="van", benchmark="pictures", tasks=None, passes=1, **overrides):
    known = vars(method_entry(method).settings())
    few = {"batch_size": "4", "memory_per_class": "2", "reference_batch": "3", "draws": "1"}
    few |= {"learning_rate": "0.0001", "epochs": "1"}
    given = {name: text for name, text in few.items() if name in known}
    texts = {name: str(value) for name, value in overrides.items()}
    return specify(benchmark, method, tasks=tasks, passes=passes, overrides=given | texts)


def variants(image):
    """Return whether an image is mirrored and how far it goes, by all that may become of it."""
    edge = ((0, 0), (CROP, CROP), (CROP, CROP))
    padded = [np.pad(each, edge) for each in (image, image[..., ::-1])]
    return {
        padded[flip][:, down : down + SIDE, right : right + SIDE].tobytes(): (flip, down, right)
        for flip in (False, True)
        for down in range(2 * CROP + 1)
        for right in range(2 * CROP + 1)
    }


def draws(settings, batches=120, size=7, seeds=(3,)):
    """Return what became of every image: which variant of itself it is."""
    augment = Augmentation(settings, seeds, torch.device("cpu"))
    augment.begin_task(1)
    source = np.arange(1.0, 1 + size * 3 * SIDE * SIDE).reshape(size, 3, SIDE, SIDE)
    given = torch.from_numpy(source).expand(len(seeds), *source.shape)
    known = [variants(image) for image in source]
    found = [
        mine[image.tobytes()]
        for _ in range(batches)
        for mine, image in zip(known, augment(given).numpy()[0], strict=True)
    ]
    assert (given[0].numpy() == source).all()
    return found


def test_every_variant_is_as_frequent_as_every_other():
    found = draws(AugmentationSettings(flip=True, crop=CROP))
    counts = Counter(found)
    assert len(counts) == 2 * 5 * 5
    assert stats.chisquare([*counts.values()]).pvalue > 1e-3
    pairs = Counter(pairwise(found))  # nor do neighbours go together
    assert max(pairs.values()) <= 6


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (AugmentationSettings(flip=True), {(flip, CROP, CROP) for flip in (False, True)}),
        (
            AugmentationSettings(crop=CROP),
            {(False, down, right) for down in range(5) for right in range(5)},
        ),
    ],
)
def test_each_is_done_without_the_other(settings, wanted):
    assert set(draws(settings)) == wanted


def test_it_is_off_unless_it_is_asked_for_and_then_in_the_address():
    plain = spec_of().identity()
    assert not {"flip", "crop"} & {*plain["settings"]}
    changed = spec_of(**ALL).identity()
    assert changed["settings"] == {**plain["settings"], "flip": True, "crop": CROP}
    assert changed["benchmark"] == plain["benchmark"]


def test_training_is_augmented_and_neither_tests_nor_what_is_held_out_nor_the_memory():
    plain = build_stream(spec_of(), [0], "cpu")
    stream = build_stream(spec_of(passes=2, patience=1, **ALL), [0], "cpu")
    examples = stream.train(0)
    seen = stream.batch(examples.inputs, examples.labels).inputs
    again = stream.batch(examples.inputs, examples.labels).inputs
    assert not torch.equal(seen, again)
    own = {each.tobytes() for image, _ in images() for each in image}
    assert all(image.numpy().tobytes() in own for image in examples.inputs[0])
    assert not all(image.numpy().tobytes() in own for image in seen[0])
    for (batch,), (other,) in ((stream.test(0), plain.test(0)),):
        assert torch.equal(batch.inputs, other.inputs)
    for batch, _ in stream.held_out([0]):
        assert all(image.numpy().tobytes() in own for image in batch.inputs)
    _, (state,) = run_whole(spec_of("er", **ALL), [0])
    held = state["bank"]["table"]["inputs"][0, :8]
    assert all(image.numpy().tobytes() in own for image in held)


@pytest.mark.parametrize("method", names())
def test_every_method_learns_from_augmented_images(method):
    (outcome,), _ = run_whole(spec_of(method, **ALL), [0])
    assert outcome["failure"] is None


@pytest.mark.numerical
@pytest.mark.parametrize("method", ["er", "mer", "derpp", "gdumb", "multi-task"])
def test_a_run_that_is_stopped_anywhere_ends_with_the_same_bits(method, tmp_path):
    spec = spec_of(method, **ALL)
    whole = run_whole(spec, [0])
    while True:
        place = checkpoint(tmp_path, Dying, lives=3)
        try:
            again = run_whole(spec, [0], checkpoint=place)
            break
        except Killed:
            continue
    assert same_bits(again, whole)


def test_runs_draw_alike_alone_and_stacked():
    settings = AugmentationSettings(flip=True, crop=CROP)
    both = Augmentation(settings, [5, 6], torch.device("cpu"))
    alone = Augmentation(settings, [6], torch.device("cpu"))
    given = torch.randn(2, 4, 3, SIDE, SIDE)
    for task in (0, 1):
        both.begin_task(task)
        alone.begin_task(task)
        for _ in range(3):
            assert torch.equal(both(given)[1], alone(given[1:])[0])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"crop": -1}, "crop must be a whole number below 2\\^31 and at least 0, not -1"),
        ({"crop": 5}, "crop must be at most 4, half the side of the images, not 5"),
        ({"crop": 1.5}, "crop must be a whole number, not"),
        ({"flip": "up"}, "flip must be true or false, not"),
        ({"benchmark": "vectors", "flip": True}, r"are for images \[3, height, width\], not for"),
        ({"benchmark": "vectors", "crop": 1}, r"not for inputs \[4\]"),
    ],
)
def test_what_cannot_be_done_is_refused(given, said):
    with pytest.raises(EngramError, match=said):
        spec_of(**given)


def test_the_paper_s_benchmarks_have_none():
    for name in ("permuted-mnist", "split-cifar", "split-cub", "split-awa"):
        with pytest.raises(EngramError, match=r"There is no setting of van on .*'flip'"):
            specify(name, "van", overrides={"flip": "true"})


def test_images_that_end_as_a_single_place_are_not_learned_one_by_one():
    """A norm of one number has no statistics: said before anything is trained."""
    few = [(np.random.rand(9, 3, 8, 8).astype(np.float32), np.arange(9) % 2) for _ in range(2)]
    from_tensors(few, name="specks")
    with pytest.raises(EngramError, match="ResNet' cannot be trained on single examples"):
        run(spec_of("mer", "specks"), [0])
    with pytest.raises(EngramError, match="batch_size must be another than 3 for the network"):
        run(spec_of("van", "specks", batch_size=3), [0])


def test_folders_have_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    photos = write_photos(tmp_path / "photos", {"1": {"a": 4, "b": 4}, "2": {"c": 4, "d": 4}})
    spec = spec_of(benchmark=f"folder:{photos}", size=16, **ALL)
    stream = build_stream(spec, [0], "cpu")
    examples = stream.train(0)
    seen = stream.batch(examples.inputs, examples.labels).inputs
    assert not torch.equal(seen, stream.normalise(examples.inputs))
