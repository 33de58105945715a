"""What step records and sizes add to the page: the section on k2, and memory that is projected."""

import json
from importlib import resources

import numpy as np
import pytest
import torch
from page_reader import report
from paper_world import make_row

from engram.lab.networks import ResNet

TITLE = "k2: the lengths of both gradients, step by step"
ORDER = "θ1 ≤ θ2, % of these"


def recorded(seed, examples, share, histogram, **more):
    facts = {
        "recorded_steps": 400,
        "k2_below_1_percent": share,
        "log_k2_histogram": histogram,
        "mixing_percent": 80.0,
        "theta_1_at_most_theta_2_percent": 100 - share,
        "cos_theta_1_error": 2e-6 * (seed + 1),
        "cos_theta_2_error": 1e-9,
    }
    return make_row("mega-i", seed, tasks=20, examples=examples, facts=facts, **more)


@pytest.fixture
def rows():
    few = [recorded(seed, 200, 1.0 + seed, f"{-seed}: 1 1 2") for seed in range(2)]
    many = [recorded(seed, 55_000, 4.0, "-2: 1 0 0 0 0 3") for seed in range(2)]
    return [*many, *few, *(make_row("mega-i", seed) for seed in range(2))]


def test_the_section_has_the_shares_beside_the_paper_s_and_the_checked_angles(rows):
    page = report(rows)
    titles, *lines = page.tables[TITLE]
    assert titles[:5] == ["runs", "k2 < 1, %", "paper", "steps with both, %", ORDER]
    assert [line[:8] for line in lines] == [
        ["MEGA-I, 20 × 200", "1.50 ± 0.50", "1.05", "80.00 ± 0.00", "98.50 ± 0.50",
         "4.0e-06", "1.0e-09", "800"],
        ["MEGA-I, 20 × 55,000", "4.00 ± 0.00", "3.61", "80.00 ± 0.00", "96.00 ± 0.00",
         "4.0e-06", "1.0e-09", "800"],
    ]  # fmt: skip
    assert all(len(line[-1]) == 10 for line in lines)
    assert "cos θ1 = (k1 k2 + c) / √(k1² k2² + 2 k1 k2 c + 1)" in page.words
    latex = next(pre for pre in page.pres if "theta" in pre)
    assert r"$\theta$1 $\le$ $\theta$2, \%" in latex


def test_the_histogram_is_of_shares_in_quarters_of_the_logarithm(rows):
    charts = report(rows).data["k2"]["charts"]
    histogram = charts["histogram"]
    assert histogram["x"] == ["-0.5", "-0.25", "0", "0.25", "0.5", "0.75"]
    few, many = histogram["series"]
    # Of one seed 25, 25 and 50 % from 0 on, of the other the same a quarter lower.
    assert few["mean"] == pytest.approx([0, 12.5, 25, 37.5, 25, 0])
    assert few["std"] == pytest.approx(np.std([[0, 0, 25, 25, 50, 0], [0, 25, 25, 50, 0, 0]], 0))
    assert many["mean"] == pytest.approx([25, 0, 0, 0, 0, 75])
    assert charts["k2-below-1-percent"]["series"][0]["paper"] == [1.05, None]
    assert charts["theta-1-at-most-theta-2-percent"]["series"][0]["paper"] is None


def test_runs_without_records_have_no_such_section():
    assert "k2" not in report([make_row("mega-i")]).data
    strange = make_row("mega-i", facts={"k2_below_1_percent": 3.0, "log_k2_histogram": "many"})
    assert "histogram" not in report([strange]).data["k2"]["charts"]


@pytest.mark.parametrize("benchmark", ["split-cub", "split-awa"])
def test_memory_of_what_was_not_run_is_projected_and_labelled(benchmark):
    facts = {"parameters": 1_000_000, "memory_bytes": 2_000_000, "state_bytes": 500_000}
    page = report([make_row("a-gem", seed, benchmark, facts=facts) for seed in range(2)])
    (section,) = page.data.values()
    assert [line["name"] for line in section["lines"]] == ["A-GEM", "PROG-NN (projected)"]
    memory = section["charts"]["memory"]
    assert memory["series"][0]["mean"] == [6.5]
    network = ResNet({"split-cub": 200, "split-awa": 850}[benchmark], 64, large_images=True,
                     shortcut_norm=False)  # fmt: skip
    widths = network.widths
    lateral = sum(widths[i] * widths[i + 1] + widths[i + 1] for i in range(6))
    parameters = 17 * network.size + 17 * 16 // 2 * lateral
    averages = network.initial_buffers(torch.zeros(1, 1)).nbytes
    assert memory["series"][1]["mean"] == pytest.approx([(4 * parameters + 17 * averages) / 1e6])
    assert memory["note"].endswith("PROG-NN: projected from the size of the network, not run.")
    assert len(section["charts"]["seconds"]["series"]) == 1


def test_what_was_run_is_not_projected():
    text = resources.files("engram.app.report").joinpath("projections.json").read_text()
    assert set(json.loads(text)["held"]) == {"split-cub", "split-awa"}
    page = report([make_row("prog-nn", 0, "split-cub")])
    (section,) = page.data.values()
    assert [line["name"] for line in section["lines"]] == ["PROG-NN"]
    fewer = report([make_row("a-gem", 0, "split-cub", tasks=3)])
    assert "projected" not in fewer.words
