"""On a GPU: captured steps are recorded as plain ones are, and recording does not wait either."""

import os

import numpy as np
import pytest
import torch
from in_step import Taught, teach_in_step

from engram.lab.protocol import run, specify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before the GPU is first used


SPECS = {
    method: specify("permuted-mnist", method, tasks=3, examples=605)
    for method in ("mega-i", "mega-ii", "a-gem", "gem", "ewc")
}


@pytest.mark.parametrize("method", SPECS)
def test_captured_steps_are_recorded_as_plain_ones_are(method):
    captured, plain = (
        Taught(SPECS[method], [0, 1], captured=captured, record=True) for captured in (True, False)
    )
    teach_in_step(captured, plain, tolerance=1e-5)
    for run_ in range(2):
        ours, theirs = captured.record.of(run_), plain.record.of(run_)
        assert ours["task"].tolist() == theirs["task"].tolist()
        for name, column in theirs.items():
            np.testing.assert_allclose(ours[name], column, rtol=1e-5, atol=1e-5, err_msg=name)


def test_of_every_few_captured_steps_the_last_is_kept():
    every, some = (
        run(SPECS["mega-i"], [0, 1], device="cuda", deterministic=True, record_every=number)
        for number in (1, 7)
    )
    for whole, thin in zip(every, some, strict=True):
        last = (whole.steps["step"] % 7 == 6) | (whole.steps["step"] == 60)
        for name, column in thin.steps.items():
            np.testing.assert_array_equal(column, whole.steps[name][last], err_msg=name)


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("method", ["mega-i", "mega-ii"])
def test_no_recorded_step_waits_for_the_host(method):
    run(SPECS[method], [0, 1], device="cuda", record_every=1)
