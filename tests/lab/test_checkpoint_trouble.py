"""A run that diverges is named, stops where it did, and leaves the others of its stack alone."""

import pytest
import torch
from tiny_worlds import EXAMPLES, TASKS, Tiny, run_whole, same_bits, tiny_spec

from engram.errors import EngramError
from engram.lab.benchmarks import Stream
from engram.lab.engine import CudaGraphLoop, Rows
from engram.lab.methods import names
from engram.lab.protocol import Checkpoint, Paused, prepare_workspace, run

pytestmark = pytest.mark.numerical

SENTENCE = "The loss became non-finite in task 2 of 3, at step 4 of 6 (learning_rate 0.5)."
"""Of the fourth batch of seed 2, in which no input is a number (see BROKEN)."""


@pytest.fixture
def steps(monkeypatch):
    taken, advance = [], CudaGraphLoop.advance
    monkeypatch.setattr(
        CudaGraphLoop,
        "advance",
        lambda self, stop: taken.append(self.step) or advance(self, stop),
    )
    return taken


def test_a_run_that_diverges_on_its_way_takes_no_other_seed_with_it():
    spec = tiny_spec("pi", "tiny-broken")
    (fine, bad), (state,) = run_whole(spec, [0, 2])
    (alike, other), (expected,) = run_whole(spec, [0, 1])
    assert (bad["failure"], other["failure"], fine["failure"]) == (SENTENCE, None, None)
    assert same_bits(fine, alike)
    mine, theirs = (
        {name: state[name][:1] for name in ("parameters", "total", "penalty_weight")}
        for state in (state, expected)
    )
    assert same_bits(mine, theirs)
    # What was measured before is kept, what came after is not.
    assert 0 <= bad["accuracy"][0][0] <= 1
    assert bad["accuracy"][1:] == [[None] * 3] * 2
    assert [len(points) for points in bad["curve"]] == [7, 3]


def test_a_run_stops_at_the_step_and_the_last_good_checkpoint_is_named(steps, tmp_path):
    spec, lines, times = tiny_spec("pi", "tiny-broken"), [], iter(range(10**6))
    place = Checkpoint(tmp_path / "pi.safetensors", 4, lambda: next(times), lines.append)
    (outcome,) = run(spec, [2], checkpoint=place)
    assert outcome.failure == SENTENCE
    assert steps == [*range(6), *range(4)]
    (line,) = lines
    last = "The last good checkpoint is of task 2 of 3, step 1"
    assert line == f"Seed 2: {SENTENCE} {last}: {place.path}"
    # Going on from there ends in the same way, at the same step.
    del steps[:]
    again = Checkpoint(place.path, 1e9, message=lines.append)
    assert run(spec, [2], checkpoint=again)[0].accuracy == outcome.accuracy
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("method", names())
def test_no_method_lets_a_diverging_run_touch_another(method, monkeypatch):
    spec, initialise = tiny_spec(method), Stream.initialise
    expected = run_whole(spec, [0, 1, 2])[0]

    def poisoned(self, network, seed):
        return initialise(self, network, seed).mul_(torch.nan if seed == 1 else 1)

    monkeypatch.setattr(Stream, "initialise", poisoned)
    first, bad, last = run_whole(spec, [0, 1, 2])[0]
    assert same_bits([first, last], [expected[0], expected[2]])
    assert "The loss became non-finite in task 1 of 3, at step 1 of 6" in bad["failure"]
    assert bad["accuracy"] == [[None] * TASKS] * TASKS
    assert bad["curve"] in ([], [[]])


def test_weights_that_no_loss_has_seen_are_looked_at_when_a_task_ends(monkeypatch):
    monkeypatch.setattr(Rows, "descend", lambda self, *_: self.parameters.fill_(torch.inf))
    (outcome,) = run(tiny_spec("van", batch_size=EXAMPLES), [0])
    assert outcome.failure == (
        "The weights became non-finite in task 1 of 3, at step 1 of 1 (learning_rate 0.5)."
    )
    assert [len(points) for points in outcome.curve] == [1]


def test_a_run_whose_stack_goes_on_keeps_its_failure_over_a_stop(tmp_path, monkeypatch):
    initialise = Stream.initialise
    monkeypatch.setattr(
        Tiny,
        "initialise",
        lambda self, network, seed: initialise(self, network, seed).mul_(1e30 if seed else 1),
    )
    spec = tiny_spec("mega-ii")
    whole = run_whole(spec, [0, 1])
    place = Checkpoint(tmp_path / "a.safetensors", 0, message=lambda _: None)
    place.pause()
    with pytest.raises(Paused, match="task 1 of 3, step 1"):
        run(spec, [0, 1], checkpoint=place)
    assert same_bits(run_whole(spec, [0, 1], checkpoint=Checkpoint(place.path)), whole)


# ---- the same bits each time


def test_the_switch_holds_for_the_run_alone():
    def switches():
        cudnn = torch.backends.cudnn
        switched_on = torch.are_deterministic_algorithms_enabled()
        return switched_on, cudnn.deterministic, cudnn.benchmark

    spec, before, inside = tiny_spec("mega-ii"), switches(), []
    run(spec, [0], deterministic=True, progress=lambda _: inside.append(switches()))
    assert set(inside) == {(True, True, False)}
    assert switches() == before
    assert not before[1]
    assert same_bits(run_whole(spec, [0], deterministic=True), run_whole(spec, [0]))


def test_a_gpu_must_be_told_before_it_begins(monkeypatch):
    name = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.setenv(name, "")
    prepare_workspace("cpu")
    with pytest.raises(EngramError, match=f"deterministic needs {name}=:4096:8 .* not ''"):
        prepare_workspace("cuda")
    monkeypatch.setenv(name, ":16:8")
    prepare_workspace("cuda:1")
