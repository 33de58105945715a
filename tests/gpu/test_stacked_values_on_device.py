"""On a GPU: runs that differ in a setting are captured as one, and end as each does alone."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "lab"))

from tiny_worlds import run_whole, same_bits, tiny_spec

from engram.lab.engine import rows as engine_rows
from engram.lab.methods import method_entry, names
from engram.lab.protocol import Checkpoint, Paused, run, specify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before the GPU is first used

VALUES = {
    "learning_rate": (0.03, 0.01),
    "epsilon": (0.1, 2.0),
    "max_angle": (3.0, 0.2),
    "least_area": (0.0, 10.0),
    "margin": (0.5, 0.0),
    "ridge": (1e-3, 1.0),
    "strength": (1e-4, 1e-2),
    "gamma": (0.1, 0.5),
    "beta": (0.03, 0.5),
    "alpha": (0.3, 2.0),
    "average": (0.9, 0.0),
}
OPTIONS = {
    ("mer", "beta"): {"algorithm": "batches"},
    ("recommended", "epsilon"): {"rule": "mega-i"},
}
EVERY = [(method, name) for method in names() for name in method_entry(method).varies]
assert VALUES.keys() >= {name for _, name in EVERY}  # seen without a GPU too
SEEDS = [0, 1, 0]


def specs_of(method, name):
    usual = {"learning_rate": "0.02"}
    if "strength" in method_entry(method).varies:
        usual["strength"] = "1e-3"
    if method == "mer":
        usual |= {"draws": "2", "algorithm": "one-batch", **OPTIONS.get((method, name), {})}
    first, last = (
        specify(
            "permuted-mnist",
            method,
            tasks=3,
            examples=205,
            overrides={**usual, name: str(value)},
        )
        for value in VALUES[name]
    )
    return [first, first, last]


def weights(state):
    return state["columns"][-1] if "columns" in state else state["parameters"]


@pytest.mark.parametrize(("method", "name"), EVERY)
def test_a_run_is_the_same_alone_or_stacked_with_other_values(method, name):
    """In double precision: a stack rounds otherwise, and steps of learning blow that up."""
    usual = {"learning_rate": 0.1, **OPTIONS.get((method, name), {})}
    first, last = (
        tiny_spec(method, "tiny-double", **usual | {name: value}) for value in VALUES[name]
    )
    specs = [first, first, last]
    together, (state,) = run_whole(specs, SEEDS, device="cuda")
    for index, (spec, seed) in enumerate(zip(specs, SEEDS, strict=True)):
        (alone,), (own,) = run_whole(spec, [seed], device="cuda")
        for part in ("seed", "accuracy", "curve"):
            assert together[index][part] == alone[part]
        torch.testing.assert_close(weights(state)[index], weights(own)[0])


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize(("method", "name"), [each for each in EVERY if each[0] != "mer"])
def test_no_step_waits_for_the_host(method, name):
    outcomes = run(specs_of(method, name), SEEDS, device="cuda")
    assert all(outcome.failure is None for outcome in outcomes)


class Pausing(Checkpoint):
    """Pauses at one step end."""

    ends = 0

    def due(self):
        self.ends += 1
        if self.ends == 30:
            self.pause()
        return super().due()


@pytest.mark.parametrize(("method", "name"), [("mega-i", "epsilon"), ("van", "learning_rate")])
def test_a_stack_that_was_stopped_ends_with_the_same_bits(method, name, tmp_path):
    specs, options = specs_of(method, name), {"device": "cuda", "deterministic": True}
    path = tmp_path / "run.safetensors"
    with pytest.raises(Paused):
        run(specs, SEEDS, checkpoint=Pausing(path, 1e9), **options)
    gone_on = run_whole(specs, SEEDS, checkpoint=Checkpoint(path, 1e9), **options)
    assert same_bits(gone_on, run_whole(specs, SEEDS, **options))


@pytest.mark.parametrize("method", ["mega-ii", "prog-nn"])
def test_residual_networks_side_by_side_have_a_rate_each(method):
    world, sizes = "tiny-images-double", {"tasks": 2, "examples": 10}
    specs = [tiny_spec(method, world, learning_rate=rate, **sizes) for rate in (2e-3, 1e-3)]
    _, (state,) = run_whole(specs, [0, 1], device="cuda")
    for index, spec in enumerate(specs):
        _, (own,) = run_whole(spec, [index], device="cuda")
        torch.testing.assert_close(weights(state)[index], weights(own)[0])


@pytest.mark.parametrize("rows", [2, 3, 17])
def test_a_step_has_every_run_s_own_rate(rows):
    given, weights = torch.randn(4, rows, 5000), torch.rand(4, rows)
    before, rates = torch.randn(4, 5000), torch.tensor([[0.5], [0.1], [0.0], [2.0]])
    exact = before.double() - rates * (weights.double().unsqueeze(1) @ given.double()).squeeze(1)
    parameters = before.cuda()
    engine_rows.descend_along(parameters, given.cuda(), weights.cuda(), rates.cuda())
    torch.testing.assert_close(parameters.cpu().double(), exact, rtol=1e-5, atol=1e-5)
