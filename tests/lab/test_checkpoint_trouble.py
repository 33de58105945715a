"""A run that diverges is named, stops where it did, and leaves the others of its stack alone."""

import re

import pytest
import torch
from tiny_worlds import EXAMPLES, TASKS, Tiny, run_whole, same_bits, tiny_spec

from engram.engine import CudaGraphLoop, Rows
from engram.errors import EngramError
from engram.methods import names
from engram.protocol import Checkpoint, Paused, run, specify
from engram.protocol.precision import precision, prepare_workspace
from engram.streams import Stream, load_mnist

SENTENCE = re.compile(  # at which step is up to the roundings of the machine's products
    r"The loss became non-finite in task 2 of 2, at step (\d\d) of 60 \(learning_rate 0\.1\)\."
)


@pytest.fixture
def published(monkeypatch):
    """PI as it was published, on tasks of 600 examples: seed 2 diverges, seeds 0 and 1 do not."""
    mnist = load_mnist()
    few = mnist._replace(test_images=mnist.test_images[:100], test_labels=mnist.test_labels[:100])
    monkeypatch.setattr("engram.streams._permuted.load_mnist", lambda: few)
    given = {"learning_rate": "0.1", "strength": "0.1"}
    return specify("permuted-mnist", "pi", tasks=2, examples=600, overrides=given)


@pytest.fixture
def steps(monkeypatch):
    taken, advance = [], CudaGraphLoop.advance
    monkeypatch.setattr(
        CudaGraphLoop,
        "advance",
        lambda self, stop: taken.append(self.step) or advance(self, stop),
    )
    return taken


def test_pi_as_published_takes_no_other_seed_with_it(published):
    (fine, bad), (state,) = run_whole(published, [0, 2])
    (alike, other), (expected,) = run_whole(published, [0, 1])
    assert SENTENCE.fullmatch(bad["failure"])
    assert (other["failure"], fine["failure"]) == (None, None)
    assert same_bits(fine, alike)
    mine, theirs = (
        {name: state[name][:1] for name in ("parameters", "total", "penalty_weight")}
        for state in (state, expected)
    )
    assert same_bits(mine, theirs)
    # What was measured before is kept, what came after is not.
    assert bad["accuracy"][0][0] > 0.2
    assert bad["accuracy"][1] == [None, None]
    assert [len(points) for points in bad["curve"]] == [11, 11]


def test_a_run_stops_at_the_step_and_the_last_good_checkpoint_is_named(published, steps, tmp_path):
    lines, times = [], iter(range(10**6))
    place = Checkpoint(tmp_path / "pi.safetensors", 20, lambda: next(times), lines.append)
    (outcome,) = run(published, [2], checkpoint=place)
    step = int(SENTENCE.fullmatch(outcome.failure)[1])
    assert len(steps) == 60 + step
    (line,) = lines
    said = re.fullmatch(
        rf"Seed 2: {re.escape(outcome.failure)} The last good checkpoint is of (.+): (.+)", line
    )
    assert said[2] == str(place.path)
    # Going on from there ends in the same way, at the same step.
    last = int(said[1].removeprefix("task 2 of 2, step "))
    assert 10 <= last < step
    del steps[:]
    again = Checkpoint(place.path, 1e9, tell=lines.append)
    assert run(published, [2], checkpoint=again)[0].accuracy == outcome.accuracy
    assert steps == [*range(last, step)]


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
    place = Checkpoint(tmp_path / "a.safetensors", 0, tell=lambda _: None)
    place.pause()
    with pytest.raises(Paused, match="task 1 of 3, step 1"):
        run(spec, [0, 1], checkpoint=place)
    assert same_bits(run_whole(spec, [0, 1], checkpoint=Checkpoint(place.path)), whole)


# ---- the same bits each time


def test_the_switch_holds_for_the_run_alone():
    before = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    with precision("float32", deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.deterministic
    assert (torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()) == before
    spec = tiny_spec("mega-ii")
    assert same_bits(run_whole(spec, [0], deterministic=True), run_whole(spec, [0]))


def test_a_gpu_must_be_told_before_it_begins(monkeypatch):
    name = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.setenv(name, "")
    prepare_workspace("cpu")
    with pytest.raises(EngramError, match=f"deterministic needs {name}=:4096:8 .* not ''"):
        prepare_workspace("cuda")
    monkeypatch.setenv(name, ":16:8")
    prepare_workspace("cuda:1")
