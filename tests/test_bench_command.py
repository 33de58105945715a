"""What was measured is printed, kept and shown on pages."""

import json
from contextlib import nullcontext

import pytest
import torch

from engram.app import report
from engram.app.report import SPEED_TABLES
from engram.errors import EngramError
from engram.lab import bench
from tools.docs.pages import write_pages


def test_a_cpu_and_a_gpu_have_tables_that_can_be_printed():
    assert {*bench._CPU, *bench._GPU, "kernels", "peers", "versions"} == set(SPEED_TABLES)


def test_bench_prints_and_saves_what_it_measures(tmp_path, engram, monkeypatch):
    path = tmp_path / "new" / "performance-here.json"
    rows = bench.methods(["van"], blocks=1, rounds=1)
    monkeypatch.setattr(bench, "measure", lambda *_: [("methods", rows)])
    assert "times MEGA-II" in engram("bench", device="cpu", json=path).out
    saved = json.loads(path.read_text())
    assert saved["tables"] == {"methods": rows}
    assert saved["device"].startswith("one thread of ")
    assert saved["command"] == "engram bench --device cpu"
    assert set(saved["versions"]) - {"commit"} == {"engram", "python", "torch"}
    assert saved["created"].startswith("20")


def test_only_the_tables_that_are_asked_for_are_measured(tmp_path, monkeypatch, engram):
    monkeypatch.setattr(bench, "_CPU", {name: lambda: [] for name in ("steps", "methods")})
    monkeypatch.setattr(bench.torch, "set_num_threads", lambda _: None)
    path = tmp_path / "performance-here.json"
    engram("bench", "methods", "methods", device="cpu", json=path)
    saved = json.loads(path.read_text())
    assert saved["tables"] == {"methods": []}
    assert saved["command"] == "engram bench methods methods --device cpu"
    code, _, err = engram("bench", "steps", "step", device="cpu", json=tmp_path / "none.json")
    assert (code, "no table for this device 'step'" in err) == (2, True)
    assert not (tmp_path / "none.json").exists()
    code, _, err = engram("bench", "steps", device="cpu", json=path)
    assert (code, "exists already, and may hold tables that are not" in err) == (2, True)


def test_a_gpu_is_measured_by_its_own_clock(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "device", lambda name: asked.append(name) or nullcontext())
    monkeypatch.setattr(bench, "_GPU", {"stacks": lambda device: [{"on": device}]})
    assert list(bench.measure("cuda:1")) == [("stacks", [{"on": "cuda:1"}])]
    assert asked == ["cuda:1"]


def test_what_was_measured_before_a_failure_is_kept(tmp_path, engram, monkeypatch):
    def measure(device, _):
        yield "methods", []
        raise RuntimeError(device)

    monkeypatch.setattr(bench, "measure", measure)
    path = tmp_path / "performance-here.json"
    with pytest.raises(RuntimeError, match="cpu"):
        engram("bench", device="cpu", json=path)
    assert json.loads(path.read_text())["tables"] == {"methods": []}


def test_a_table_that_comes_in_parts_is_kept_part_after_part(tmp_path, engram, monkeypatch):
    path, row = tmp_path / "performance-here.json", {"model": "one", "ratio": 1.0}

    def parts():
        yield [row]
        assert json.loads(path.read_text())["tables"] == {"loop": [row]}
        yield [{**row, "model": "two"}]
        raise RuntimeError("the third")

    monkeypatch.setattr(bench, "_CPU", {"loop": parts})
    monkeypatch.setattr(bench.torch, "set_num_threads", lambda _: None)
    with pytest.raises(RuntimeError, match="the third"):
        engram("bench", "loop", device="cpu", json=path)
    models = [each["model"] for each in json.loads(path.read_text())["tables"]["loop"]]
    assert models == ["one", "two"]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("", "json must be the name of a file"),
        ("text/performance-here.json", "performance-here.json' cannot be written"),
    ],
)
def test_where_no_file_can_be_is_told_before_anything_is_measured(
    tmp_path, engram, monkeypatch, place, sentence
):
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("measured"))
    (tmp_path / "text").write_text("no folder")
    code, _, err = engram("bench", device="cpu", json=tmp_path / place)
    assert (code, sentence in err) == (2, True)


@pytest.fixture
def page(tmp_path):
    """A page with one block, and what makes it anew."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "results").mkdir()

    def make(table):
        block = f"<!-- generated: performance {table} -->\n<!-- end -->\n"
        (docs / "speed.md").write_text(block)
        write_pages(docs, [])
        return (docs / "speed.md").read_text()

    return make


def test_a_page_shows_a_table_of_every_file_that_has_it(tmp_path, page):
    row = {"method": "van", "runs": 5, "microseconds": 61.04, "lowest": 60.0, "highest": 63.0}
    tables = {"captured": [{**row, "ratio": 0.5, "bound": None}]}
    for name in ("one", "two"):
        report.save_performance(
            tmp_path / "results" / f"performance-{name}.json",
            tables,
            device=f"device {name}",
            command="engram bench",
            versions={"avalanche-lib": "0.6.0"},
        )
    made = page("captured")
    assert made.count("| van | 5 | 61.0 | 60.0–63.0 | 0.50 | – |") == 2
    receipts = [line for line in made.splitlines() if line.startswith("Device ")]
    assert [line.split(",")[0] for line in receipts] == ["Device one", "Device two"]
    assert all("PyTorch" in line and "Avalanche 0.6.0" in line for line in receipts)
    assert all(line.endswith("`engram bench`:") for line in receipts)
    assert "Not measured yet." in page("stacks")


def test_of_a_device_it_shows_what_was_measured_last(tmp_path, page):
    row = {"method": "van", "runs": 5, "lowest": 60.0, "highest": 63.0, "ratio": 0.5, "bound": None}
    for name, microseconds in (("z", 61.0), ("a", 62.0)):  # the later one comes first by its name
        report.save_performance(
            tmp_path / "results" / f"performance-{name}.json",
            {"captured": [{**row, "microseconds": microseconds}]},
            device="a GPU",
            command="engram bench captured",
        )
    made = page("captured")
    assert ("| 62.0 |" in made, "| 61.0 |" in made) == (True, False)


@pytest.mark.parametrize("content", ["", "[]", '{"device": 1}'])
def test_a_file_of_something_else_gets_one_sentence(tmp_path, page, content):
    (tmp_path / "results" / "performance-bad.json").write_text(content)
    with pytest.raises(EngramError, match=r"performance-bad\.json' holds no measured speed"):
        page("stacks")


def test_a_table_that_does_not_exist_gets_one_sentence(page):
    with pytest.raises(EngramError, match="There is no table of measured speed 'step'"):
        page("step")
