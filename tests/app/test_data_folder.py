"""The command line and the folder that data is in: missing, named, listed."""

import json
import os

import pytest


@pytest.fixture
def invoke(tmp_path, monkeypatch, engram):
    """Run the real command line without any data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "none"))
    return engram


@pytest.mark.parametrize(
    "words", [("run", "permuted-mnist", "van"), ("tune", "permuted-mnist", "van"), ("data",)]
)
def test_a_data_folder_that_is_missing_is_one_sentence(invoke, words):
    result = invoke(*words, "--data", "nowhere")
    assert (result.code, result.out) == (2, "")
    assert result.err == "engram: data must be a folder that exists, not 'nowhere'.\n"


@pytest.mark.parametrize("verb", ["run", "tune"])
@pytest.mark.parametrize(
    ("benchmark", "name"),
    [("split-cifar", "cifar-100"), ("split-cub", "cub-200-2011"), ("split-awa", "awa2")],
)
def test_missing_data_is_told_before_anything_is_made(invoke, tmp_path, verb, benchmark, name):
    (tmp_path / "empty").mkdir()
    result = invoke(verb, benchmark, "mega-i", "--device", "cpu", "--data", "empty")
    assert (result.code, result.out) == (2, "")
    (sentence,) = result.err.splitlines()
    assert f"`engram data fetch {name}`" in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert os.environ["ENGRAM_DATA"] == "empty"


def test_data_is_listed_and_an_unknown_name_is_refused(invoke, tmp_path):
    listed = invoke("data", "--json")
    names = [source["name"] for source in json.loads(listed.out)["sources"]]
    assert names == ["cifar-100", "cub-200-2011", "awa2", "resnet18-imagenet"]
    assert "cifar-100" in invoke("data").out
    result = invoke("data", "fetch", "cifar-10", "--data", str(tmp_path))
    assert result.code == 2
    assert "did you mean 'cifar-100'" in result.err


@pytest.mark.parametrize("words", [("fetch", "cifar-100", "--data"), ("--data",)])
def test_what_is_in_the_folder_is_not_fetched(invoke, tmp_path, words):
    place = tmp_path / "mine" / "cifar-100-binary"
    place.mkdir(parents=True)
    (place / "train.bin").write_bytes(b"")
    more = () if len(words) > 1 else ("fetch", "cifar-100")
    result = invoke("data", *words, "mine", *more)
    assert result.code == 0
    assert result.out == "mine/cifar-100-binary\n"


def test_a_report_needs_a_store(invoke):
    result = invoke("report")
    assert result.code == 2
    assert result.err.startswith("engram: There is no store at ")
