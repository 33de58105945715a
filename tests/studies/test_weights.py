"""A study may start Split CUB from weights of one's own: a place, known by what lies there."""

import re
from pathlib import Path

import pytest

from engram.app.runs import Store, record
from engram.app.studies import plan, read_study
from engram.lab.data import sources
from engram.lab.protocol import Outcome

IMAGES = "the images of birds"
STUDY = """\
title = "Split CUB from other weights"

[[runs]]
benchmark = "split-cub"
methods = ["van"]
tasks = 1
seeds = 1
settings = { weights = "mine.safetensors", precision = "bfloat16" }
"""


@pytest.fixture
def read(tmp_path, monkeypatch, cub_checksums):
    """Read the study anew: its one entry has not looked at its data yet."""
    monkeypatch.chdir(tmp_path)
    cub_checksums(IMAGES)
    (tmp_path / "mine.toml").write_text(STUDY, "utf-8")
    return lambda: read_study("mine.toml")


def spec_of(study):
    (runs,) = study.runs
    (spec,) = runs.specs
    return spec


def test_weights_are_a_setting_that_counts_by_its_checksum(read, tmp_path):
    assert spec_of(read()).settings["weights"] == "mine.safetensors"
    identities = []
    for content in (b"one", b"other"):
        (tmp_path / "mine.safetensors").write_bytes(content)
        identities.append(spec_of(read()).identity())
    one, other = identities
    assert one["data"] != other["data"]
    assert {**one, "data": ""} == {**other, "data": ""}
    assert "weights" not in one["settings"]
    assert one["settings"]["precision"] == "bfloat16"


def test_without_its_weights_results_from_elsewhere_do_but_none_on_other_data(
    read, tmp_path, cub_checksums
):
    def made():
        outcome = Outcome(0, [[0.5]], [[0.1, 0.2]], seconds=1.0, device="cpu")
        return record(spec_of(read()), outcome, "engram run")

    (tmp_path / "mine.safetensors").write_bytes(b"mine")
    other = made()
    assert other.identity["data"].startswith("other-")  # and is no listed stand-in
    papers = next(each for each in sources() if each.name == "resnet18-imagenet").checksum
    with cub_checksums(IMAGES, papers.removeprefix("sha256:")):
        real = made()
    assert not real.identity["data"].startswith("other-")
    (tmp_path / "mine.safetensors").unlink()
    with Store(tmp_path / "store.sqlite") as store:
        for rows in ([], [other]):
            store.add(rows)
            (planned,) = plan(read(), store, device="cpu")
            assert "mine.safetensors" in planned.absent
        store.add([real])
        (planned,) = plan(read(), store, device="cpu")
        assert planned.absent is None


def test_the_studies_that_the_documentation_shows_can_be_read(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text("utf-8")
    shown = re.findall(r"(?ms)^```toml\n(.*?)^```$", text)
    assert len(shown) == 2
    for number, each in enumerate(shown):
        file = tmp_path / f"{number}.toml"
        file.write_text(each, "utf-8")
        assert read_study(str(file)).runs
