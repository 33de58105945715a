"""On a GPU: captured steps are the plain ones, and none of them waits for the host."""

import pytest
import torch

from engram.methods import names
from engram.protocol import _steps, run, specify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CAPTURED = [
    "van",
    "er",
    "a-gem",
    "mega-i",
    "mega-ii",
    "mega-ii-unbalanced",
    "ewc",
    "pi",
    "mas",
    "rwalk",
]


def accuracies(method, device="cuda", **overrides):
    texts = {name: str(value) for name, value in overrides.items()}
    if method == "pi":
        texts["strength"] = "1e-4"
    spec = specify("permuted-mnist", method, tasks=3, examples=605, overrides=texts)
    outcomes = run(spec, [0, 1], device=device)
    assert all(outcome.failure is None for outcome in outcomes)
    return torch.tensor(
        [[value or 0 for row in outcome.accuracy for value in row] for outcome in outcomes]
    )


@pytest.mark.parametrize("method", CAPTURED)
def test_captured_steps_train_as_plain_ones_do(method, monkeypatch):
    captured = accuracies(method)
    monkeypatch.setattr(_steps, "_WARM_UP", 10**9)
    plain = accuracies(method)
    assert (captured - plain).abs().max() < 0.02


@pytest.mark.parametrize("memory", ["sample", "reservoir", "fifo"])
def test_every_memory_can_be_captured(memory, monkeypatch):
    captured = accuracies("mega-ii", memory=memory, memory_per_class=5)
    monkeypatch.setattr(_steps, "_WARM_UP", 10**9)
    assert (captured - accuracies("mega-ii", memory=memory, memory_per_class=5)).abs().max() < 0.02


@pytest.mark.parametrize("method", ["van", "gem", "mega-ii", "rwalk"])
def test_a_gpu_trains_as_the_cpu_does(method):
    # Small steps: rounding that differs by device is not blown up by sixty steps of learning.
    small = {"learning_rate": 0.01}
    difference = accuracies(method, **small) - accuracies(method, device="cpu", **small)
    assert difference.abs().max() < 0.02


@pytest.mark.parametrize("method", CAPTURED)
def test_no_step_waits_for_the_host(method, monkeypatch):
    take = _steps.TaskSteps.take

    def watched(self, step):
        torch.cuda.set_sync_debug_mode("error")
        try:
            take(self, step)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    # Recording a graph synchronises by itself: only plain steps are watched.
    monkeypatch.setattr(_steps, "_WARM_UP", 10**9)
    monkeypatch.setattr(_steps.TaskSteps, "take", watched)
    accuracies(method)


def test_the_list_above_is_complete():
    assert set(CAPTURED) <= set(names())
