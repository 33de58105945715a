"""PROG-NN: the columns' equation, what is frozen, how it grows, and the same run on every path."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional

from engram.errors import EngramError
from engram.lab.engine import Batch
from engram.lab.methods import MethodSettings, Setup, method_entry
from engram.lab.networks import MLP, Network, ProgressiveMLP
from engram.lab.plan import generator
from engram.lab.protocol import run, specify
from engram.metrics import forgetting

pytestmark = pytest.mark.numerical

SIZES = (6, 5, 4, 3)
RATE = 0.1


def build(seeds=(0, 1), dtype=torch.float32, device="cpu", sizes=SIZES):
    network = MLP(sizes)
    drawn = [network.initialise(generator(seed, "parameters")) for seed in seeds]
    parameters = torch.stack(drawn).to(device, dtype)
    setup = Setup(network, parameters, seeds, stream=None)
    return method_entry("prog-nn").build(setup, MethodSettings(learning_rate=RATE))


def batches(task, count, seeds=(0, 1), dtype=torch.float32):
    """The batches of a task, each run's from its own seed."""
    made = []
    for step in range(count):
        sources = [torch.Generator().manual_seed(1000 * seed + 100 * task + step) for seed in seeds]
        inputs = [torch.rand(7, 6, generator=source, dtype=dtype) for source in sources]
        labels = [torch.randint(0, 3, (7,), generator=source) for source in sources]
        made.append(Batch(torch.stack(inputs), torch.stack(labels)))
    return made


def learn(method, tasks, steps=4, **how):
    for task in tasks:
        method.begin_task(task, torch.zeros(2, 0))
        for step, batch in enumerate(batches(task, steps, **how)):
            method.observe(step, batch.inputs, batch)


def apart(column, sizes=SIZES):
    """Cut one run's column [(t + 1) d] into (U_0 … U_{t−1}, W) and (u_0 … u_{t−1}, b) by layer."""
    size = sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes))
    count, start, layers = len(column) // size, 0, []
    for inputs, outputs in pairwise(sizes):
        numbers = [inputs * outputs] * count + [outputs] * count
        parts = column[start : start + sum(numbers)].split(numbers)
        start += sum(numbers)
        weights = [part.view(inputs, outputs) for part in parts[:count]]
        layers.append((weights, list(parts[count:])))
    return layers


def naive(columns, inputs):
    """The last column's logits by the equation, a column and a lateral at a time."""
    depth = len(SIZES) - 1
    states = []  # of each column: its input to every layer, then its logits
    for own, column in enumerate(columns):
        mine = [inputs]
        for layer, (weights, biases) in enumerate(apart(column)):
            value = mine[layer] @ weights[own] + biases[own]
            for before in range(own):
                value = value + states[before][layer] @ weights[before] + biases[before]
            mine.append(value if layer == depth - 1 else value.relu())
        states.append(mine)
    return states[-1][-1]


@pytest.mark.parametrize("task", [0, 1, 2, 5])
def test_a_step_is_plain_sgd_on_the_equation_s_gradient(task):
    """Against autograd in float64; six columns need more than one product of frozen ones."""
    method = build(dtype=torch.float64)
    learn(method, range(task + 1), dtype=torch.float64)
    before = [column.clone() for column in method.progressive.columns]
    (batch,) = batches(9, 1, dtype=torch.float64)
    mix = method.observe(4, batch.inputs, batch)
    assert mix.weights.tolist() == [[1.0], [1.0]]
    assert mix.gram is None
    for seed in range(2):
        columns = [column[seed].clone().requires_grad_() for column in before]
        loss = functional.cross_entropy(naive(columns, batch.inputs[seed]), batch.labels[seed])
        (gradient,) = torch.autograd.grad(loss, columns[-1])
        torch.testing.assert_close(mix.losses[seed, 0], loss.detach())
        expected = before[-1][seed] - RATE * gradient
        torch.testing.assert_close(method.parameters[seed], expected, rtol=1e-12, atol=1e-12)
        assert gradient.count_nonzero() > 0.5 * gradient.numel()


def test_only_the_newest_column_moves():
    method = build()
    learn(method, [0])
    frozen = []
    for task in (1, 2, 3, 4, 5):
        frozen.append(method.parameters.clone())
        method.begin_task(task, torch.zeros(2, 0))
        drawn = method.parameters.clone()
        for step, batch in enumerate(batches(task, 4)):
            method.observe(step, batch.inputs, batch)
        assert not torch.equal(method.parameters, drawn)
        for column, then in zip(method.progressive.columns, frozen, strict=False):
            assert torch.equal(column, then)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("sizes", [SIZES, (784, 256, 256, 10)])
def test_predictions_of_a_task_are_bit_identical_for_ever(seeds, sizes):
    """From its last step on, while it is the newest column and when it is frozen."""
    torch.manual_seed(0)
    method = build(seeds, sizes=sizes)
    kept = torch.stack([torch.randperm(sizes[0])[: sizes[0] // 2] for _ in seeds])
    inputs = torch.rand(300, sizes[0] // 2)
    then = []
    for task in range(6):
        method.begin_task(task, torch.zeros(2, 0))
        batch = Batch(torch.rand(len(seeds), 7, sizes[0]), torch.randint(0, 3, (len(seeds), 7)))
        method.observe(0, batch.inputs, batch)
        then.append(method.predict(inputs, kept, task))
    for task, logits in enumerate(then):
        assert torch.equal(method.predict(inputs, kept, task), logits)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_prediction_is_the_equation_s_with_columns_where_they_belong(seeds):
    torch.manual_seed(1)
    method = build(seeds, torch.float64)
    learn(method, range(3), seeds=seeds, dtype=torch.float64)
    places = torch.stack([torch.randperm(6)[:4] for _ in seeds])
    inputs = torch.randn(2_001, 4, dtype=torch.float64)
    for task in range(3):
        logits = method.predict(inputs, places, task)
        for index in range(len(seeds)):
            full = torch.zeros(2_001, 6, dtype=torch.float64)
            full[:, places[index]] = inputs
            columns = [column[index] for column in method.progressive.columns[: task + 1]]
            torch.testing.assert_close(logits[index], naive(columns, full))
            plain = method.predict(full, None, task)[index]
            torch.testing.assert_close(plain, logits[index])


def test_columns_are_drawn_as_the_mlp_is_laterals_included():
    method = build((3,), sizes=(40, 30, 20, 10))
    first = method.parameters.clone()
    method.begin_task(0, torch.zeros(1, 0))
    assert torch.equal(method.parameters, first)
    for task in (1, 2):
        method.begin_task(task, torch.zeros(1, 0))
        for weights, biases in apart(method.parameters[0], (40, 30, 20, 10)):
            assert len(weights) == len(biases) == task + 1
            assert len({weight.sum().item() for weight in weights}) == task + 1
            for weight in weights:
                assert weight.abs().max() <= 0.2
                assert weight.std().item() == pytest.approx(0.088, rel=0.2)
            assert all((bias == 0.1).all() for bias in biases)


def test_the_paper_s_network_has_41_million_parameters_after_17_tasks():
    network = MLP()
    columns = ProgressiveMLP(network, torch.empty(1, network.size, device="meta"))
    for task in range(1, 17):
        columns.grow(torch.empty(1, (task + 1) * network.size, device="meta"))
    assert columns.size == 153 * 269_322 == 41_206_266


def test_parameters_are_reported_as_they_grow():
    method = build()
    for task in range(5):
        method.begin_task(task, torch.zeros(2, 0))
        assert method.facts()["parameters"] == (task + 1) * (task + 2) // 2 * MLP(SIZES).size


@pytest.mark.parametrize("used", [False, True])
def test_a_run_saved_in_the_middle_of_a_task_goes_on_to_the_same_bits(used):
    method, other = build(), build()
    learn(method, range(2))
    method.begin_task(2, torch.zeros(2, 0))
    part = batches(2, 6)
    for step in range(3):
        method.observe(step, part[step].inputs, part[step])
    saved = method.state_dict()
    if used:
        learn(other, range(5))  # what is loaded replaces whatever was there
    other.load_state_dict(saved)
    for learner in (method, other):
        for step in range(3, 6):
            learner.observe(step, part[step].inputs, part[step])
        learn(learner, range(3, 6))
    for mine, theirs in zip(method.progressive.columns, other.progressive.columns, strict=True):
        assert torch.equal(mine, theirs)
    inputs = torch.rand(20, 6)
    for task in range(6):
        assert torch.equal(method.predict(inputs, None, task), other.predict(inputs, None, task))
    assert not torch.equal(saved["columns"][2], method.progressive.columns[2])


def test_a_run_is_the_same_alone_or_stacked():
    together = build(dtype=torch.float64)
    learn(together, range(6), dtype=torch.float64)
    for seed in range(2):
        alone = build((seed,), torch.float64)
        learn(alone, range(6), seeds=(seed,), dtype=torch.float64)
        for mine, theirs in zip(
            alone.progressive.columns, together.progressive.columns, strict=True
        ):
            torch.testing.assert_close(mine[0], theirs[seed])


def test_a_step_reads_nothing_back_to_the_host():
    """On a device that has no values to give."""
    method = build(device="meta")
    for task in range(6):
        method.begin_task(task, torch.zeros(2, 0))
        batch = Batch(*(part.to("meta") for part in batches(task, 1)[0][:2]))
        assert method.observe(0, batch.inputs, batch).losses.shape == (2, 1)


def test_nothing_is_forgotten(few_mnist):
    few_mnist(200)
    spec = specify("permuted-mnist", "prog-nn", tasks=4, examples=300)
    assert spec.settings["learning_rate"] == 0.1
    (outcome,) = run(spec, [0])
    assert outcome.failure is None
    assert outcome.facts["parameters"] == 10 * 269_322
    for task in range(4):
        first = outcome.accuracy[task][task]
        assert [row[task] for row in outcome.accuracy[task:]] == [first] * (4 - task)
    assert forgetting(outcome.accuracy) == 0
    assert min(outcome.accuracy[3]) > 0.3


def test_a_column_that_diverges_shows_in_the_parameters():
    """Which is where the trainer looks for it."""
    method = build()
    learn(method, range(2))
    method.learning_rate = 1e30
    learn(method, [2], steps=8)
    assert not torch.isfinite(method.parameters).all(-1).any()
    assert all(torch.isfinite(column).all() for column in method.progressive.columns[:2])


def test_tasks_out_of_order_and_without_a_column_are_refused():
    method = build()
    method.begin_task(0, torch.zeros(2, 0))
    with pytest.raises(EngramError, match=r"task must be 1, the next one, .* not 3"):
        method.begin_task(3, torch.zeros(2, 0))
    for task in (1, -1):
        with pytest.raises(EngramError, match=f"task must be from 0 to 0, .* not {task}"):
            method.predict(torch.rand(2, 6), None, task)


def test_another_network_is_refused():
    class Foreign(Network):
        initialise = forward = backward = predict = None

    setup = Setup(Foreign(), torch.zeros(1, 3), (0,), stream=None)
    with pytest.raises(EngramError, match=r"network must be an MLP or a ResNet .* not Foreign"):
        method_entry("prog-nn").build(setup, MethodSettings())
