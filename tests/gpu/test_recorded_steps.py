"""On a GPU: captured steps are recorded as plain ones are, and recording does not wait either."""

import numpy as np
import pytest
import torch

from engram.engine import cuda_graphs
from engram.protocol import run, specify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def steps(method, every=1, **settings):
    texts = {"learning_rate": "0.01"} | {name: str(value) for name, value in settings.items()}
    spec = specify("permuted-mnist", method, tasks=3, examples=605, overrides=texts)
    return [outcome.steps for outcome in run(spec, [0, 1], device="cuda", record_every=every)]


@pytest.mark.parametrize("method", ["mega-i", "mega-ii", "a-gem", "gem", "ewc"])
def test_captured_steps_are_recorded_as_plain_ones_are(method, monkeypatch):
    captured = steps(method)
    monkeypatch.setattr(cuda_graphs, "WARM_UP", 10**9)
    for ours, plain in zip(captured, steps(method), strict=True):
        assert ours["task"].tolist() == plain["task"].tolist()
        for name, column in plain.items():
            # Rounding differs by path, and steps of learning make it grow.
            assert np.allclose(ours[name], column, rtol=0.05, atol=0.02, equal_nan=True), name


def test_of_every_few_captured_steps_the_last_is_kept():
    every, some = steps("mega-i"), steps("mega-i", every=7)
    for whole, thin in zip(every, some, strict=True):
        last = (whole["step"] % 7 == 6) | (whole["step"] == 60)
        assert thin["step"].tolist() == whole["step"][last].tolist()
        assert np.allclose(thin["k2"], whole["k2"][last], rtol=0.05, equal_nan=True)


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("method", ["mega-i", "mega-ii"])
def test_no_recorded_step_waits_for_the_host(method):
    steps(method)
