"""What was measured is printed, kept and shown on pages."""

import json
from contextlib import nullcontext

import pytest
import torch

from engram.app import report
from engram.app.cli.bench import bench as run_bench
from engram.app.report.performance import SPEED_TABLES
from engram.errors import EngramError
from engram.lab import bench
from tools.docs.pages import write_pages


def test_a_cpu_and_a_gpu_have_tables_that_can_be_printed():
    assert {*bench._CPU, *bench._GPU, "kernels", "peers"} == set(SPEED_TABLES)


def test_bench_prints_and_saves_what_it_measures(tmp_path, capsys):
    path = tmp_path / "new" / "performance-here.json"
    rows = bench.methods(["van"], blocks=1, rounds=1)
    run_bench(device="cpu", json_path=path, measure=lambda *_: [("methods", rows)])
    assert "times MEGA-II" in capsys.readouterr().out
    saved = json.loads(path.read_text())
    assert saved["tables"] == {"methods": rows}
    assert saved["device"].startswith("one thread of ")
    assert saved["command"] == "engram bench --device cpu"
    assert set(saved["versions"]) == {"engram", "python", "torch"}
    assert saved["created"].startswith("20")


def test_only_the_tables_that_are_asked_for_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "_CPU", {name: lambda: [] for name in ("steps", "methods")})
    monkeypatch.setattr(bench.torch, "set_num_threads", lambda _: None)
    path = tmp_path / "performance-here.json"
    run_bench(["methods", "methods"], device="cpu", json_path=path)
    saved = json.loads(path.read_text())
    assert saved["tables"] == {"methods": []}
    assert saved["command"] == "engram bench methods methods --device cpu"
    with pytest.raises(EngramError, match=r"no table for this device 'step'"):
        run_bench(["steps", "step"], device="cpu", json_path=tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()
    with pytest.raises(EngramError, match="exists already, and may hold tables that are not"):
        run_bench(["steps"], device="cpu", json_path=path)


def test_a_gpu_is_measured_by_its_own_clock(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "device", lambda name: asked.append(name) or nullcontext())
    monkeypatch.setattr(bench, "_GPU", {"stacks": lambda device: [{"on": device}]})
    assert list(bench.measure("cuda:1")) == [("stacks", [{"on": "cuda:1"}])]
    assert asked == ["cuda:1"]


def test_what_was_measured_before_a_failure_is_kept(tmp_path):
    def measure(device, _):
        yield "methods", []
        raise RuntimeError(device)

    path = tmp_path / "performance-here.json"
    with pytest.raises(RuntimeError):
        run_bench(device="cpu", json_path=path, measure=measure)
    assert json.loads(path.read_text())["tables"] == {"methods": []}


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(EngramError, match="json must be the name of a file"):
        run_bench(device="cpu", json_path=tmp_path, measure=lambda *_: pytest.fail("measured"))


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path):
    (tmp_path / "text").write_text("no folder")
    place = tmp_path / "text" / "performance-here.json"
    with pytest.raises(EngramError, match=r"performance-here\.json' cannot be written"):
        run_bench(device="cpu", json_path=place, measure=lambda *_: pytest.fail("measured"))


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
