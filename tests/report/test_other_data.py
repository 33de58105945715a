"""Data that is known not to be the paper's is filed as such, and never taken for the paper's."""

import hashlib

import numpy as np
import pytest
from page_reader import report
from paper_world import DEFAULTS, make_row

from engram.app.report import judge, summarise
from engram.lab.benchmarks import benchmark
from engram.lab.data import ImageSet, sources
from tools.docs.method_page import method_results
from tools.docs.reproduction import reproduction
from tools.docs.results_page import results_page

CUB_SETTINGS = benchmark("split-cub").settings
MINE = f"other-{'d' * 64}"
SHORT = "other-dddddddddd"
LISTED = (  # AwA2's classes.txt
    "antelope grizzly+bear killer+whale beaver dalmatian persian+cat horse german+shepherd "
    "blue+whale siamese+cat skunk mole tiger hippopotamus leopard moose spider+monkey "
    "humpback+whale elephant gorilla ox fox sheep seal chimpanzee hamster squirrel rhinoceros "
    "rabbit bat giraffe wolf chihuahua rat weasel otter buffalo zebra giant+panda deer bobcat pig "
    "lion mouse polar+bear collie walrus raccoon cow dolphin"
)
ANIMALS = LISTED.split()


def runs(method, final, data=MINE, **options):
    options = {"final": final, "data": data, "command": "engram run with my own", **options}
    return [make_row(method, seed, "split-cub", **options) for seed in range(2)]


@pytest.fixture
def cub(cub_checksums, tmp_path):
    """Return the name of Split CUB's data with some bytes as the file of its weights."""
    cub_checksums("birds")

    def name(content):
        path = tmp_path / "weights.pth"
        path.write_bytes(content)
        return benchmark("split-cub").checksum(CUB_SETTINGS(weights=str(path)))

    return name


def test_split_cub_from_other_weights_is_other_data(cub, cub_checksums):
    digest = hashlib.sha256(b"mine").hexdigest()
    plain = hashlib.sha256(f"birds {digest}".encode()).hexdigest()
    assert cub(b"mine") == f"other-{plain}"
    assert benchmark("split-cub").checksum(CUB_SETTINGS(weights="none")) == "other-birds"
    # The public checkpoint is known by what the file holds, wherever it lies.
    (public,) = [each for each in sources() if each.name == "resnet18-imagenet"]
    papers = public.checksum.removeprefix("sha256:")
    with cub_checksums("birds", papers):
        assert cub(b"") == hashlib.sha256(f"birds {papers}".encode()).hexdigest()


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (ANIMALS, "pixels"),
        (ANIMALS[::-1], "other-pixels"),  # the label is the place: other classes to tune on
        ([f"class+{number}" for number in range(50)], "other-pixels"),
        ([], "other-pixels"),
    ],
)
def test_split_awa_of_other_classes_is_other_data(awa_images, names, name):
    assert len(set(ANIMALS)) == 50
    nothing = np.zeros(0)
    awa_images(ImageSet(nothing, nothing, nothing, nothing, tuple(names), "pixels"))
    assert benchmark("split-awa").checksum(None) == name


def test_the_paper_s_numbers_do_not_stand_beside_other_data():
    (mine,) = summarise(runs("van", 0.5))
    (real,) = summarise(runs("van", 0.5, data="c" * 64))
    for metric in ("average_accuracy", "forgetting", "lca_10"):
        assert DEFAULTS.printed(mine, metric) is None
        assert DEFAULTS.printed(real, metric) is not None
    (part,) = summarise(runs("van", 0.5, tasks=3))
    assert DEFAULTS.share(part) is None
    text = results_page(runs("van", 0.5), DEFAULTS, "c")
    assert f"# Results: split-cub (data {SHORT}), 17 tasks of 300 examples\n" in text
    assert "53.89" not in text
    for table in ("split-cub", "missing", "claims"):
        both = [reproduction(table, summarise(rows), DEFAULTS) for rows in (runs("van", 0.5), [])]
        assert both[0] == both[1]  # as if it had not been run


def test_no_claim_rests_on_other_data():
    rows = [*runs("mega-i", 0.9), *runs("mega-ii", 0.9), *runs("multi-task", 0.5)]
    assert all(
        part.ours is None for claim in judge(summarise(rows), DEFAULTS) for part in claim.parts
    )


def test_other_data_has_a_place_of_its_own_in_the_report():
    rows = [*runs("mega-ii", 0.8), *runs("a-gem", 0.6)]
    rows += [*runs("mega-ii", 0.7, data="c" * 64), *runs("a-gem", 0.6, data="c" * 64)]
    found = report(rows)
    assert list(found.data) == ["split-cub-17x300", f"split-cub-{SHORT}-17x300"]
    assert f"Split CUB (data {SHORT}), 17 tasks of 300 examples" in found.headings
    alone = report(rows[:4])
    assert "yet: Permuted MNIST, Split CIFAR, Split CUB, Split AWA." in alone.words
    assert "80.58" not in alone.words


def test_its_command_is_the_one_that_was_typed_and_not_called_another():
    text = "\n".join(method_results(summarise(runs("van", 0.5)), ["van"], DEFAULTS, "all.md"))
    assert "Made by:\n    engram run with my own" in text
    assert "again" not in text
    papers = summarise([make_row("van")])
    assert "To run it again:\n    engram run permuted-mnist van" in "\n".join(
        method_results(papers, ["van"], DEFAULTS, "all.md")
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("split-awa", "17 tasks of up to 1,000 examples"),
        ("folder-photos-0123456789", "17 tasks of up to 9 examples"),
        ("split-cub", "17 tasks of 300 examples"),
        ("permuted-mnist", "17 tasks of 55,000 examples"),
    ],
)
def test_tasks_of_different_sizes_are_of_up_to_so_many_examples(name, told):
    row = make_row("van", 0, name, examples=9 if "photos" in name else None)
    assert summarise([row])[0].setting.title == f"{name}, {told}"
