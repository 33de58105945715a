"""On a GPU: captured steps are the plain ones, and none of them waits for the host."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "lab"))

from in_step import Taught, teach_in_step
from tiny_worlds import run_whole, same_bits, tiny_spec

from engram.lab.benchmarks import Examples
from engram.lab.engine import CudaGraphLoop, cuda_graphs
from engram.lab.methods import method_entry, names
from engram.lab.protocol import run, specify
from engram.lab.protocol.device import precision
from engram.testing import Subject, equal

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before the GPU is first used

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
    "der",
    "derpp",
    "recommended",
    "er-ace",
    "lwf",
    "gdumb",
]


MEMORIES = ["sample", "reservoir", "fifo"]
WAYS = [
    *((method, {}) for method in CAPTURED),
    *(("mega-ii", {"memory": kind}) for kind in MEMORIES),
    ("recommended", {"updates": 3, "masked": True, "rule": "mega-ii"}),
    ("recommended", {"alpha": 0.0, "average": 0.0, "memory": "sample"}),
]


def spec_of(method, **overrides):
    texts = {name: str(value) for name, value in overrides.items()}
    if method == "pi":
        texts["strength"] = "1e-4"
    if "memory" in texts:
        texts["memory_per_class"] = "5"
    return specify("permuted-mnist", method, tasks=3, examples=605, overrides=texts)


@pytest.mark.parametrize(("method", "options"), WAYS)
def test_captured_steps_are_plain_ones(method, options):
    spec = spec_of(method, **options)
    captured, plain = (Taught(spec, [0, 1], captured=captured) for captured in (True, False))
    teach_in_step(captured, plain, tolerance=1e-5)


@torch.no_grad()
def test_passes_side_by_side_take_the_steps_of_passes_in_turn():
    """DER++ makes its three passes one after the other; what is recommended, side by side."""
    ours = Taught(spec_of("recommended", alpha=0.3, average=0.0), [0, 1])
    theirs = Taught(spec_of("derpp", alpha=0.3, beta=1.0), [0, 1], captured=False)
    mine, other = ours.method.parameters, theirs.method.parameters
    with precision("float32"):
        for task in range(ours.stream.tasks):
            steps, _ = ours.begin(task), theirs.begin(task)
            for step in range(steps):
                other.copy_(mine)
                before = mine.clone()
                ours.take(step)
                theirs.take(step)
                assert (mine - other).abs().max() <= 1e-3 * (mine - before).abs().max()
            ours.end(task)
            theirs.end(task)


@pytest.mark.parametrize("together", [2, 5])
@pytest.mark.parametrize("method", ["van", "mega-ii", "gem", "ewc", "rwalk", "multi-task"])
def test_several_steps_to_a_replay_are_as_many_replays_of_one(method, together, monkeypatch):
    one = run_whole(spec_of(method), [0, 1], device="cuda", deterministic=True)
    monkeypatch.setattr(cuda_graphs, "TOGETHER", together)
    monkeypatch.setattr(cuda_graphs, "_LONG", 1)
    assert same_bits(run_whole(spec_of(method), [0, 1], device="cuda", deterministic=True), one)


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


@pytest.mark.parametrize("method", names())
def test_a_gpu_trains_as_the_cpu_does(method):
    """In double precision: devices round otherwise, and steps of learning blow that up."""
    spec = tiny_spec(method, "tiny-double", learning_rate=0.1)
    (ours, (here,)), (theirs, (there,)) = (
        run_whole(spec, [0, 1], device=device) for device in ("cuda", "cpu")
    )
    for one, other in zip(ours, theirs, strict=True):
        assert one["failure"] is other["failure"] is None
        for part in ("accuracy", "curve"):
            assert measured(one[part]) == pytest.approx(measured(other[part]))
    name = "columns" if "columns" in here else "parameters"
    torch.testing.assert_close(here[name], there[name], check_device=False)


def measured(table):
    return [value for row in table for value in row if value is not None]


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("method", CAPTURED)
def test_no_step_waits_for_the_host(method):
    assert all(outcome.failure is None for outcome in run(spec_of(method), [0, 1], device="cuda"))


def test_the_list_above_is_complete():
    entries = map(method_entry, names())
    runs = [Subject(entry, entry.settings()).fresh_run(device="cuda") for entry in entries]
    capturable = [run.method.capturable for run in runs]
    assert {name for name, yes in zip(names(), capturable, strict=True) if yes} == set(CAPTURED)


@pytest.mark.parametrize("method", names())
@torch.no_grad()
def test_a_state_that_was_on_the_host_goes_on_on_the_device(method):
    """As it is when a checkpoint has been read from a file."""
    entry = method_entry(method)
    subject = Subject(entry, entry.settings(batch_size=4))
    run = subject.fresh_run(device="cuda")
    saved = [(moment, on_the_host(run.method.state_dict())) for moment in run.teach()]
    for moment, state in saved[::3]:
        loaded = subject.fresh_run(device="cuda")
        loaded.method.load_state_dict(state)
        assert equal(run.result(), loaded.finish(after=moment).result())


def on_the_host(state):
    if isinstance(state, torch.Tensor):
        return state.cpu()
    if isinstance(state, dict):
        return {name: on_the_host(value) for name, value in state.items()}
    return [on_the_host(value) for value in state] if isinstance(state, list | tuple) else state
