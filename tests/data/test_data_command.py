"""``engram data`` tells what is here and where the rest would come from."""

import json

import pytest
from official_layouts import cifar_arrays, write_cifar_binary


@pytest.fixture
def folder(folder):
    """Return a data folder with CIFAR-100 in it."""
    write_cifar_binary(folder, cifar_arrays(2, 1), cifar_arrays(2, 2))
    return folder


def test_the_table_has_a_line_for_each(folder, engram):
    text = engram("data", "--data", folder).out
    for word in (
        "cifar-100",
        "169 MB",
        "cub-200-2011",
        "1.2 GB",
        "awa2",
        "13.0 GB",
        "resnet18-imagenet",
    ):
        assert word in text
    assert text.count("not here") == 3
    unfolded = "".join(text.split())
    assert "non-commercialresearch" in unfolded
    assert "www.cs.toronto.edu/~kriz/" in unfolded


def test_as_json(folder, engram):
    out = engram("data", "--json", "--data", folder).out
    listed = {entry["name"]: entry for entry in json.loads(out)["sources"]}
    assert listed["cifar-100"]["present"] == str(folder / "cifar-100-binary")
    assert listed["awa2"]["present"] is None
    assert listed["cub-200-2011"]["bytes"] == 1_150_585_339
    assert listed["resnet18-imagenet"]["checksum"].startswith("sha256:f37072fd")


def test_what_is_here_is_not_fetched(folder, engram):
    out = engram("data", "fetch", "cifar-100", "--data", folder).out
    assert out == f"{folder / 'cifar-100-binary'}\n"


def test_json_is_for_the_list_alone(folder, engram):
    assert engram("data", "--json", "fetch", "cifar-100", "--data", folder) == (
        2,
        "",
        "engram: --json is for the list of data sets: `engram data --json`.\n",
    )


def test_an_unknown_name_lists_the_valid_ones(folder, engram):
    code, _, err = engram("data", "fetch", "cub", "--data", folder)
    assert code == 2
    assert "valid are awa2, cifar-100, cub-200-2011, resnet18-imagenet" in err
