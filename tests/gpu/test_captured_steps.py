"""On a GPU: captured steps are the plain ones, and none of them waits for the host."""

import pytest
import torch

from engram.engine import CudaGraphLoop, cuda_graphs
from engram.methods import method_entry, names
from engram.protocol import run, specify
from engram.protocol.precision import precision
from engram.streams import Examples
from engram.testing._compare import equal
from engram.testing._course import Subject

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CAPTURED = [
    "van",
    "er",
    "a-gem",
    "gem",
    "mega-i",
    "mega-ii",
    "mega-ii-unbalanced",
    "ewc",
    "pi",
    "mas",
    "rwalk",
    "prog-nn",
    "icarl",
    "mega-i-equal",
    "multi-task",
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
    monkeypatch.setattr(cuda_graphs, "WARM_UP", 10**9)
    plain = accuracies(method)
    assert (captured - plain).abs().max() < 0.02


@pytest.mark.parametrize("together", [2, 5])
@pytest.mark.parametrize("method", ["van", "mega-ii", "gem", "ewc", "rwalk", "multi-task"])
def test_several_steps_to_a_replay_are_as_many_replays_of_one(method, together, monkeypatch):
    one = accuracies(method)
    monkeypatch.setattr(cuda_graphs, "TOGETHER", together)
    monkeypatch.setattr(cuda_graphs, "_LONG", 1)
    assert accuracies(method).equal(one)


def test_a_sum_without_an_order_has_one_where_the_same_bits_are_asked_for():
    source = torch.Generator("cuda").manual_seed(0)
    numbers = torch.randn(2, 4000, 50, device="cuda", generator=source)
    examples = Examples(numbers, torch.zeros(2, 4000, dtype=torch.int64, device="cuda"))

    def total(capture):
        sums = torch.zeros(3, device="cuda")

        loop = CudaGraphLoop(examples, 400, capture=capture)
        while loop.step < len(loop):
            with loop.advance() as steps:
                for step in steps:
                    flat = step.inputs.flatten()
                    sums.index_add_(0, torch.arange(len(flat), device="cuda") % 3, flat.exp())
        return sums

    with precision("float32", deterministic=True):
        captured, again, plain = total(True), total(True), total(False)
    assert captured.equal(again)
    assert captured.equal(plain)


@pytest.mark.parametrize("memory", ["sample", "reservoir", "fifo"])
def test_every_memory_can_be_captured(memory, monkeypatch):
    captured = accuracies("mega-ii", memory=memory, memory_per_class=5)
    monkeypatch.setattr(cuda_graphs, "WARM_UP", 10**9)
    assert (captured - accuracies("mega-ii", memory=memory, memory_per_class=5)).abs().max() < 0.02


@pytest.mark.parametrize("method", ["van", "gem", "mega-ii", "rwalk"])
def test_a_gpu_trains_as_the_cpu_does(method):
    # Small steps: rounding that differs by device is not blown up by sixty steps of learning.
    small = {"learning_rate": 0.01}
    difference = accuracies(method, **small) - accuracies(method, device="cpu", **small)
    assert difference.abs().max() < 0.02


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("method", CAPTURED)
def test_no_step_waits_for_the_host(method):
    accuracies(method)


def test_the_list_above_is_complete():
    entries = map(method_entry, names())
    courses = [Subject(entry, entry.settings()).course(device="cuda") for entry in entries]
    capturable = [course.method.capturable for course in courses]
    assert {name for name, yes in zip(names(), capturable, strict=True) if yes} == set(CAPTURED)


@pytest.mark.parametrize("method", names())
@torch.no_grad()
def test_a_state_that_was_on_the_host_goes_on_on_the_device(method):
    """As it is when a checkpoint has been read from a file."""
    entry = method_entry(method)
    subject = Subject(entry, entry.settings(batch_size=4))
    course = subject.course(device="cuda")
    saved = [(moment, on_the_host(course.method.state_dict())) for moment in course.teach()]
    for moment, state in saved[::3]:
        loaded = subject.course(device="cuda")
        loaded.method.load_state_dict(state)
        assert equal(course.result(), loaded.finish(after=moment).result())


def on_the_host(state):
    if isinstance(state, torch.Tensor):
        return state.cpu()
    if isinstance(state, dict):
        return {name: on_the_host(value) for name, value in state.items()}
    return [on_the_host(value) for value in state] if isinstance(state, list | tuple) else state
