"""PROG-NN on the ResNet: the columns' equations, what is frozen, how it grows."""

import pytest
import torch
from resnet_oracles import Column
from torch.nn import functional

from engram.errors import EngramError
from engram.lab.engine import Batch
from engram.lab.methods import MethodSettings, Setup, method_entry
from engram.lab.networks import ProgressiveResNet, ResNet
from engram.lab.plan import generator

pytestmark = pytest.mark.numerical

CLASSES, WIDTH, RATE = 3, 2, 0.05


def build(seeds=(0, 1), dtype=torch.float32, width=WIDTH):
    network = ResNet(CLASSES, width)
    drawn = [network.initialise(generator(seed, "parameters")) for seed in seeds]
    setup = Setup(network, torch.stack(drawn).to(dtype), seeds, stream=None)
    return method_entry("prog-nn").build(setup, MethodSettings(learning_rate=RATE))


def batches(task, count, seeds=(0, 1), dtype=torch.float32):
    """The batches of a task, each run's from its own seed."""
    made = []
    for step in range(count):
        sources = [torch.Generator().manual_seed(1000 * seed + 100 * task + step) for seed in seeds]
        images = [torch.randn(7, 3, 8, 8, generator=source, dtype=dtype) for source in sources]
        labels = [torch.randint(CLASSES, (7,), generator=source) for source in sources]
        made.append(Batch(torch.stack(images), torch.stack(labels)))
    return made


def learn(method, tasks, steps=2, **how):
    for task in tasks:
        method.begin_task(task, torch.zeros(2, 0))
        for step, batch in enumerate(batches(task, steps, **how)):
            method.observe(step, batch.inputs, batch)


def logits_of(modules, images):
    """The last module's logits, each module reading those before it."""
    states = []
    for module in modules:
        states.append(module(images, states))
    return states[-1][-1]


@torch.enable_grad()
def step_of(modules, images, labels):
    """One step of plain SGD with the last module; the others in evaluation. Returns the loss."""
    for module in modules[:-1]:
        module.eval()
    modules[-1].train().zero_grad()
    loss = functional.cross_entropy(logits_of(modules, images), labels)
    loss.backward()
    with torch.no_grad():
        for value in modules[-1].parameters():
            value.sub_(RATE * value.grad)
    return loss.detach()


@torch.no_grad()
def test_training_and_prediction_are_the_equations_of_plain_modules():
    """Three tasks in float64, step by step."""
    method, network = build(dtype=torch.float64), ResNet(CLASSES, WIDTH)
    modules = [[], []]  # of each run, its columns
    shown = batches(9, 1, dtype=torch.float64)[0].inputs[0]
    for task in range(3):
        method.begin_task(task, torch.zeros(2, 0))
        for run, columns in enumerate(modules):
            mine = (method.parameters[run], method.buffers[run])
            columns.append(Column.of_column(network, *mine, CLASSES, WIDTH, task))
        for step, batch in enumerate(batches(task, 3, dtype=torch.float64)):
            mix = method.observe(step, batch.inputs, batch)
            assert mix.weights.tolist() == [[1.0], [1.0]]
            for run, columns in enumerate(modules):
                loss = step_of(columns, batch.inputs[run], batch.labels[run])
                torch.testing.assert_close(mix.losses[run, 0], loss)
        for run, columns in enumerate(modules):
            last = columns[-1].eval()
            torch.testing.assert_close(method.parameters[run], last.flat())
            torch.testing.assert_close(method.buffers[run], last.flat_averages())
    for task in range(3):
        predicted = method.predict(shown, None, task)
        for run, columns in enumerate(modules):
            torch.testing.assert_close(predicted[run], logits_of(columns[: task + 1], shown))


def test_frozen_columns_and_their_predictions_stay_as_they_are_bit_for_bit():
    method = build()
    images = torch.randn(300, 3, 8, 8, generator=torch.manual_seed(0))
    kept, predicted = [], []
    for task in range(4):
        learn(method, [task])
        kept.append((method.parameters.clone(), method.buffers.clone()))
        predicted.append(method.predict(images, None, task))
        for column, buffers, then in zip(
            method.progressive.columns, method.progressive.buffers, kept, strict=True
        ):
            assert torch.equal(column, then[0])
            assert torch.equal(buffers, then[1])
        for before, logits in enumerate(predicted):
            assert torch.equal(method.predict(images, None, before), logits)


def test_it_grows_by_a_network_and_a_lateral_for_each_earlier_column():
    network = ResNet(100)
    columns = network.progressive(torch.empty(1, network.size, device="meta"))
    assert isinstance(columns, ProgressiveResNet)
    # By hand: the stem's, the four stages' and the head's, weights and biases.
    lateral = (3 * 20 + 20) + (20 * 20 + 20) + (20 * 40 + 40) + (40 * 80 + 80) + (80 * 160 + 160)
    lateral += 160 * 100 + 100
    for task in range(1, 17):
        drawn = columns.initialise(generator(0, "column", task))
        assert len(drawn) == network.size + task * lateral
        columns.grow(drawn.unsqueeze(0).to("meta"))
    assert columns.size == 17 * 1_109_240 + 136 * lateral == 23_437_560


def test_parameters_are_reported_and_columns_drawn_as_they_grow():
    method = build((5,), width=8)
    network, wide = method.network, method.network.widths
    lateral = sum(wide[i] * wide[i + 1] + wide[i + 1] for i in range(6))
    for task in range(3):
        method.begin_task(task, torch.zeros(1, 0))
        links = task * (task + 1) // 2
        assert method.facts()["parameters"] == (task + 1) * network.size + links * lateral
        assert not method.buffers.any()
        source = generator(5, "column", task) if task else generator(5, "parameters")
        own = network.initialise(source)
        assert torch.equal(method.parameters[0, : network.size], own)
        column = Column.of_column(network, method.parameters[0], method.buffers[0], 3, 8, task)
        for layer in [layer for layers in column.laterals for layer in layers]:
            assert layer.weight.abs().max() <= 0.2
            assert layer.weight.std().item() == pytest.approx(0.088, rel=0.35)
            assert (layer.bias == 0.1).all()


@pytest.mark.parametrize("used", [False, True])
def test_a_run_saved_in_the_middle_of_a_task_goes_on_to_the_same_bits(used):
    method, other = build(), build()
    learn(method, range(2))
    method.begin_task(2, torch.zeros(2, 0))
    part = batches(2, 2)
    method.observe(0, part[0].inputs, part[0])
    saved = method.state_dict()
    if used:
        learn(other, range(4), steps=1)  # what is loaded replaces whatever was there
    other.load_state_dict(saved)
    for learner in (method, other):
        learner.observe(1, part[1].inputs, part[1])
        learn(learner, [3])
    mine, theirs = method.state_dict(), other.state_dict()
    for name in ("columns", "buffers"):
        for one, another in zip(mine[name], theirs[name], strict=True):
            assert torch.equal(one, another)
        assert not torch.equal(saved[name][2], mine[name][2])


def test_a_run_is_the_same_alone_or_stacked():
    together = build(dtype=torch.float64)
    learn(together, range(3), dtype=torch.float64)
    for seed in range(2):
        alone = build((seed,), torch.float64)
        learn(alone, range(3), seeds=(seed,), dtype=torch.float64)
        for name in ("columns", "buffers"):
            for mine, theirs in zip(
                alone.state_dict()[name], together.state_dict()[name], strict=True
            ):
                torch.testing.assert_close(mine[0], theirs[seed])


def test_moved_columns_are_refused():
    with pytest.raises(EngramError, match="columns must be None for a ResNet"):
        build().predict(torch.zeros(1, 3, 8, 8), torch.zeros(2, 5), 0)


@pytest.mark.parametrize(("column", "rows"), [(0, 4), (1, 2), (2, 1)])
def test_images_are_predicted_in_parts_that_fit(monkeypatch, column, rows):
    """What the stages of a column read for an image of 8 × 8 pixels, by hand: 5 parts of it."""
    method = build(dtype=torch.float64)
    learn(method, range(3), dtype=torch.float64)
    images = torch.randn(9, 3, 8, 8, dtype=torch.float64)
    whole = method.predict(images, None, column)
    states = 3 * 64 + WIDTH * 64 + WIDTH * 64 + 2 * WIDTH * 16 + 4 * WIDTH * 4
    monkeypatch.setattr("engram.lab.networks.progressive._TEST_NUMBERS", 4 * states + states // 2)
    seen, trace = set(), ResNet.trace
    monkeypatch.setattr(ResNet, "trace", lambda *given: [seen.add(len(given[2])), trace(*given)][1])
    torch.testing.assert_close(method.predict(images, None, column), whole)
    assert max(seen) == rows


def test_an_image_too_large_is_predicted_alone(monkeypatch):
    method = build(seeds=(0,))
    monkeypatch.setattr("engram.lab.networks.progressive._TEST_NUMBERS", 1)
    assert method.predict(torch.randn(2, 3, 8, 8), None, 0).shape == (1, 2, CLASSES)
