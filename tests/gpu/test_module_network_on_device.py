"""On a GPU: networks of one's own are captured where they can be, and say why where they cannot."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "lab"))

from test_network_runs import Convolutions, Everything, Small
from tiny_worlds import tiny_spec

from engram.lab.engine import cuda_graphs
from engram.lab.networks import network_source
from engram.lab.protocol import run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before the GPU is first used


class Reading(Small):
    """Reads a number back to the host."""

    def forward(self, inputs):
        logits = super().forward(inputs)
        return logits if float(logits.detach().sum()) < 1e9 else 0 * logits


def on_device(network, method, benchmark="tiny-double", seeds=(0, 1), **more):
    spec = tiny_spec(method, benchmark, examples=24, **more)
    return run(replace(spec, network=network_source(network)), seeds, device="cuda")


METHODS = ["van", "mega-ii", "gem", "ewc", "icarl", "mer", "recommended"]


@pytest.mark.parametrize("method", METHODS)
def test_captured_steps_are_the_plain_ones(method, monkeypatch):
    captured = on_device(Small, method)
    monkeypatch.setattr(cuda_graphs, "WARM_UP", 10**9)
    plain = on_device(Small, method)
    assert [each.accuracy for each in captured] == [each.accuracy for each in plain]
    assert "uncaptured" not in captured[0].facts


@pytest.mark.parametrize(
    ("network", "method", "reason"),
    [
        (Everything, "mega-ii", "draws random numbers"),
        (Reading, "mega-ii", "cannot be captured"),
    ],
)
def test_what_is_not_captured_says_why(network, method, reason):
    outcomes = on_device(network, method)
    assert reason in outcomes[0].facts["uncaptured"]
    assert outcomes[0].failure is None


def test_an_optimiser_is_not_captured_and_says_why():
    outcomes = on_device(Small, "mega-ii", optimizer="adamw", learning_rate=0.01)
    assert "optimiser" in outcomes[0].facts["uncaptured"]


def test_images_with_batch_norm_and_dropout_train():
    (outcome,) = on_device(Convolutions, "mega-ii", "tiny-images", seeds=(0,))
    assert outcome.failure is None
