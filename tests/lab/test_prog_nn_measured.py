"""PROG-NN is measured once: what can change no more is not computed again, to the same bits."""

import pytest
import torch
from tiny_worlds import TASKS, run_whole, same_bits, tiny_spec
from torch.utils._python_dispatch import TorchDispatchMode

from engram.lab.engine import Batch
from engram.lab.methods import MethodSettings, Setup, method_entry
from engram.lab.networks import MLP, progressive
from engram.lab.plan import generator
from engram.lab.protocol import Checkpoint, Paused, run, specify

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU"))]  # fmt: skip
ProgNn = method_entry("prog-nn").build
SIZES = (60, 40, 40, 10)
ROWS = 2_100  # more than are predicted at once
DIVERGING = {0: 3, 1: 4}  # seeds of Broken that take the places of these


@pytest.fixture
def asked(monkeypatch):
    """Which task is predicted, and which is the newest then, in order."""
    pairs, predict = [], ProgNn.predict

    def noted(self, inputs, columns, task):
        pairs.append((task, len(self.progressive.columns) - 1))
        return predict(self, inputs, columns, task)

    monkeypatch.setattr(ProgNn, "predict", noted)
    return pairs


# ---- a finished task


@pytest.mark.parametrize("benchmark", ["tiny", "tiny-images"])
def test_a_finished_task_is_not_predicted_again(benchmark, asked):
    run(tiny_spec("prog-nn", benchmark, examples=10, learning_rate=0.01), [0, 1])
    # Before the first of three batches, after each, and at the end.
    assert asked == [(task, task) for task in range(TASKS) for _ in range(5)]


@pytest.mark.numerical
def test_neither_is_it_by_a_run_that_was_resumed(tmp_path, asked):
    spec = tiny_spec("prog-nn", examples=10)
    whole = run_whole(spec, [0])
    del asked[:]
    place = tmp_path / "run.safetensors"
    stopped = Checkpoint(place)
    with pytest.raises(Paused):
        run(spec, [0], checkpoint=stopped, progress=lambda told: told.task == 1 and stopped.pause())
    assert same_bits(run_whole(spec, [0], checkpoint=Checkpoint(place)), whole)
    assert asked == [(task, task) for task in range(TASKS) for _ in range(5)]


@pytest.mark.numerical
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
@pytest.mark.parametrize("world", ["permuted-mnist", "tiny", "tiny-images", "diverging"])
def test_it_changes_no_bit_of_what_is_measured(world, seeds, monkeypatch, few_mnist):
    """Against a run that measures every task every time, and keeps nothing in between."""
    few_mnist(100)
    specs = {
        "permuted-mnist": specify("permuted-mnist", "prog-nn", tasks=4, examples=30),
        "tiny": tiny_spec("prog-nn"),
        "tiny-images": tiny_spec("prog-nn", "tiny-images", examples=10, learning_rate=0.01),
        "diverging": tiny_spec("prog-nn", "tiny-broken", tasks=7),
    }
    if world == "diverging":
        seeds = [DIVERGING[seed] for seed in seeds]
    once = run_whole(specs[world], seeds)
    monkeypatch.setattr(ProgNn, "settled", False)
    monkeypatch.setattr(progressive, "_ROOM", 0)
    assert same_bits(run_whole(specs[world], seeds), once)
    failures = [outcome["failure"] for outcome in once[0]]
    assert any(failures) == (world == "diverging")


def test_runs_that_diverge_in_different_tasks_are_among_them():
    spec = tiny_spec("prog-nn", "tiny-broken", tasks=7)
    outcomes, _ = run_whole(spec, [*DIVERGING.values()])
    assert "in task 1 of 7" in outcomes[0]["failure"]
    assert "in task 7 of 7" in outcomes[1]["failure"]


# ---- the columns before the one that learns


def build(seeds=(0, 1), device="cpu"):
    network = MLP(SIZES)
    drawn = [network.initialise(generator(seed, "parameters")) for seed in seeds]
    setup = Setup(network, torch.stack(drawn).to(device), seeds, stream=None)
    return method_entry("prog-nn").build(setup, MethodSettings(learning_rate=0.1))


def taught(seeds=(0, 1), device="cpu", tasks=6):
    """A network of several columns, and inputs to predict."""
    method = build(seeds, device)
    for task in range(tasks):
        method.begin_task(task, torch.zeros(2, 0))
        teach(method, 2)
    torch.manual_seed(2)
    places = torch.stack([torch.randperm(SIZES[0])[: SIZES[0] // 2] for _ in seeds])
    return method, torch.rand(ROWS, SIZES[0] // 2).to(device), places.to(device)


def teach(method, steps):
    runs, device = len(method.parameters), method.parameters.device
    for step in range(steps):
        source = torch.Generator().manual_seed(step)
        inputs = torch.rand(runs, 7, SIZES[0], generator=source).to(device)
        labels = torch.randint(0, 10, (runs, 7), generator=source).to(device)
        method.observe(step, inputs, Batch(inputs, labels))


def afresh(method, *question):
    """The answer of the same columns, asked for the first time."""
    parameters = method.progressive.columns[0]
    other = build(range(len(parameters)), parameters.device)
    other.load_state_dict(method.state_dict())
    return other.predict(*question)


@pytest.mark.numerical
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_while_a_task_is_learned_predictions_are_those_of_a_first_question(seeds, device):
    method, inputs, places = taught(seeds, device)
    whole = torch.rand(300, SIZES[0], device=device)
    for task in (5, 6):
        if task == 6:
            method.begin_task(task, torch.zeros(2, 0))
        answers = []
        for _ in range(3):
            for question in ((inputs, places), (inputs[:500], places), (whole, None)):
                answer = method.predict(*question, task)
                assert torch.equal(answer, afresh(method, *question, task))
            answers.append(answer)
            teach(method, 1)
        assert not torch.equal(answers[0], answers[1])


class Products(TorchDispatchMode):
    """Counts the products of matrices."""

    def __enter__(self):
        self.count = 0
        return super().__enter__()

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        self.count += operator.overloadpacket is torch.ops.aten.baddbmm
        return operator(*arguments, **(options or {}))


def products(method, *question):
    with Products() as made:
        method.predict(*question, len(method.progressive.columns) - 1)
    return made.count


def test_the_columns_before_are_run_once_for_each_task():
    """Five are two products in each hidden layer; the sixth, which learns, is one everywhere."""
    method, inputs, places = taught()
    question = inputs[:500], places
    assert [products(method, *question) for _ in range(3)] == [7, 3, 3]
    teach(method, 1)
    assert products(method, *question) == 3
    method.begin_task(6, torch.zeros(2, 0))
    assert [products(method, *question) for _ in range(2)] == [7, 3]
    method.load_state_dict(method.state_dict())
    assert products(method, *question) == 7


def test_other_inputs_are_noticed_even_if_they_lie_in_the_same_place():
    method, inputs, places = taught()
    for changed in (inputs, places):
        method.predict(inputs, places, 5)
        changed.copy_(changed.flip(-1))
        assert torch.equal(method.predict(inputs, places, 5), afresh(method, inputs, places, 5))
        changed.copy_(changed.flip(-1))
        assert torch.equal(method.predict(inputs, places, 5), afresh(method, inputs, places, 5))


def test_what_is_loaded_replaces_what_was_kept():
    method, inputs, places = taught()
    first = method.state_dict()
    teach(method, 1)
    method.predict(inputs, places, 5)
    other = build((7, 8))
    for task in range(6):
        other.begin_task(task, torch.zeros(2, 0))
    for state in (other.state_dict(), first):
        method.load_state_dict(state)
        assert torch.equal(method.predict(inputs, places, 5), afresh(method, inputs, places, 5))


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_no_more_is_kept_than_there_is_room_for_and_the_first_comes_first(groups, monkeypatch):
    """States of 40 units in each of two layers, for six columns and two runs; inputs; places."""
    method, inputs, places = taught()
    one = 4 * 100 * (2 * 2 * 6 * 40 + 30) + 8 * 2 * 30
    monkeypatch.setattr(progressive, "_ROOM", groups * one + one // 2)
    parts = inputs[:500].split(100)
    before = [products(method, part, places) for part in parts]
    after = [products(method, part, places) for part in parts]
    assert before == [7] * 5
    assert after == [3] * groups + [7] * (5 - groups)
    assert method.progressive._kept.nbytes == groups * one
    for part in parts:
        assert torch.equal(method.predict(part, places, 5), afresh(method, part, places, 5))


def test_frozen_columns_and_the_only_one_take_no_room():
    method, inputs, places = taught(tasks=1)
    method.predict(inputs, places, 0)
    for task in (1, 2):
        method.begin_task(task, torch.zeros(2, 0))
        for before in range(task):
            method.predict(inputs, places, before)
        assert method.progressive._kept.nbytes == 0


def test_a_run_on_a_cpu_takes_150_megabytes_for_it_at_the_most():
    assert progressive._room(torch.device("cpu"), 0) == 150_000_000
