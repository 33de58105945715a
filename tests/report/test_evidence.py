"""The front page's evidence: our accuracy beside the paper's, our speed beside a peer's."""

import json

import pytest
from paper_world import DEFAULTS, make_row, told

from engram.app.report import summarise
from engram.errors import EngramError
from tools.docs.front_page import evidence

METHODS = ("van", "mega-ii")
BENCHMARKS = ("permuted-mnist", "split-cifar")


@pytest.fixture
def rows():
    mine = [make_row(m, s, name) for name in BENCHMARKS for m in METHODS for s in range(3)]
    other = [make_row("mega-ii", s, final=0.99, learning_rate=0.5) for s in range(9)]
    return [*other, *mine, make_row("van", 0, final=0.99, split="tuning")]


@pytest.fixture
def measure(tmp_path):
    """Note down a speed beside a peer's."""

    def write(name, created, milliseconds, beside=("its PermutedMNIST",)):
        row = {"candidate": "MEGA-II of a run", "milliseconds": milliseconds}
        rows = [{**row, "beside": each, "beside_milliseconds": 4 * milliseconds} for each in beside]
        measured = {
            "device": "one thread of a CPU",
            "created": f"{created}T03:04:05Z",
            "versions": {"avalanche-lib": "0.6.0"},
            "command": "make peers",
            "tables": {"peers": rows},
        }
        (tmp_path / f"performance-{name}.json").write_text(json.dumps(measured))

    return write


def made(rows, folder, methods=METHODS):
    return evidence(summarise(rows), methods, DEFAULTS, folder).split("\n\n")


def test_a_line_has_a_methods_numbers_on_both_benchmarks_beside_the_papers(rows, tmp_path):
    table, receipt, _ = made(rows, tmp_path)
    head, _, *lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert head[1:] == ["Permuted MNIST", "paper", "seeds", "Split CIFAR", "paper", "seeds"]
    paper = {"van": ("47.55 ± 2.37", "40.44 ± 1.02"), "mega-ii": ("91.21 ± 0.10", "66.12 ± 1.94")}
    for method, line in zip(METHODS, lines, strict=True):
        mine = [
            [
                row
                for row in rows
                if (row.identity["method"], row.identity["benchmark"]) == (method, name)
                and row.identity["split"] == "training"
                and row.identity["settings"]["learning_rate"] == 0.1
            ]
            for name in BENCHMARKS
        ]
        ours = [told(each, "average_accuracy") for each in mine]
        assert line == [method, ours[0], paper[method][0], "3", ours[1], paper[method][1], "3"]
    assert "over the seeds; cpu, 2026-01-02 to 2026-01-02." in receipt


def test_what_was_not_run_is_told(rows, tmp_path):
    with pytest.raises(EngramError, match="'gem' was not run on permuted-mnist as the paper"):
        made(rows, tmp_path, ("van", "gem"))


def test_the_newest_speed_stands_beside_the_peers(rows, tmp_path, measure):
    both = ("its PermutedMNIST", "without metrics, lean data")
    measure("older", "2026-01-02", 5.0, both)
    measure("a", "2026-01-03", 6.72, both)
    assert made(rows, tmp_path)[-1] == (
        "A step of MEGA-II on Permuted MNIST takes 6.7 ms; one of A-GEM in Avalanche 0.6.0 takes "
        "26.9 ms on its own PermutedMNIST and 26.9 ms on plain tensors without metrics "
        "(one thread of a CPU, 2026-01-03)."
    )


def test_a_speed_that_lacks_a_row_is_refused_and_none_is_said_to_be_missing(
    rows, tmp_path, measure
):
    assert made(rows, tmp_path)[-1] == "Speed beside a peer: Not measured yet."
    measure("half", "2026-01-02", 5.0)
    with pytest.raises(EngramError, match="the table 'peers' must have 'MEGA-II of a run' beside"):
        made(rows, tmp_path)
