"""MER: its two algorithms worked by hand, its reservoir, and the same run on every path."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engram.errors import EngramError
from engram.lab.engine import Batch, CudaGraphFunction
from engram.lab.methods import Setup, method_entry
from engram.lab.networks import MLP
from engram.lab.protocol import run, specify
from engram.testing import no_reads

pytestmark = pytest.mark.numerical

RATE = 0.3


def build(settings, seeds=(0,), sizes=(2, 2)):
    """Return MER in float64 on a network small enough to follow by hand."""
    network = MLP(sizes)
    start = torch.randn(network.size, dtype=torch.float64, generator=torch.manual_seed(1))
    stream = SimpleNamespace(
        passes=1,
        tasks=3,
        examples=100,
        classes=sizes[-1],
        outputs=lambda labels: None,  # noqa: ARG005
        batch=lambda inputs, labels: Batch(inputs.clone(), labels),
    )
    setup = Setup(network, start.repeat(len(seeds), 1), seeds, stream)
    return method_entry("mer").build(
        setup, method_entry("mer").settings(learning_rate=RATE, **settings)
    )


def numbered(runs, count):
    """Return examples [R, N, 2] whose first feature is their number, and labels."""
    inputs = torch.randn(count, 2, dtype=torch.float64, generator=torch.manual_seed(2))
    inputs[:, 0] = torch.arange(count)
    labels = torch.arange(count) % 2
    return inputs.repeat(runs, 1, 1), labels.repeat(runs, 1)


def observe(method, inputs, labels, step):
    part = slice(step * method.settings.batch_size, (step + 1) * method.settings.batch_size)
    return method.observe(step, inputs[:, part], Batch(inputs[:, part], labels[:, part]))


def draws_of(method, place):
    """Return what an example reads in its first round."""
    return method.memory.drawn(method.memory.rows(place)[:, 0])


def softmax_step(weights, x, y):
    """One step of SGD on a linear softmax: W -= a x (p - y)', b -= a (p - y)."""
    matrix, bias = weights[:4].reshape(2, 2), weights[4:]
    scores = x @ matrix + bias
    error = np.exp(scores) / np.exp(scores).sum() - np.eye(2)[y]
    return np.concatenate([weights[:4] - RATE * np.outer(x, error).ravel(), bias - RATE * error])


def two_examples(algorithm, gamma, beta, batches):
    settings = {"algorithm": algorithm, "gamma": gamma, "beta": beta, "batches": batches}
    method = build(settings | {"draws": 1, "batch_size": 2})
    inputs = torch.tensor([[[1.0, -2.0], [0.5, 3.0]]], dtype=torch.float64)
    labels = torch.tensor([[0, 1]])
    start = method.parameters[0].clone().numpy()
    method.begin_task(0, labels)
    observe(method, inputs, labels, 0)
    return start, inputs[0].numpy(), method.parameters[0].numpy()


def test_algorithm_6_on_two_examples_by_hand():
    start, (first, second), found = two_examples("one-batch", gamma=0.4, beta=9.0, batches=9)
    # Nothing is remembered yet: one step, four tenths of which are kept.
    after_first = start + 0.4 * (softmax_step(start, first, 0) - start)
    # The memory holds the first example, so it is the one draw; the current example is last.
    walked = softmax_step(softmax_step(after_first, first, 0), second, 1)
    np.testing.assert_allclose(found, after_first + 0.4 * (walked - after_first), rtol=1e-14)


def test_algorithm_1_on_two_examples_by_hand():
    start, (first, second), found = two_examples("batches", gamma=0.4, beta=0.7, batches=2)
    one = start + 0.7 * (softmax_step(start, first, 0) - start)
    two = one + 0.7 * (softmax_step(one, first, 0) - one)
    after_first = start + 0.4 * (two - start)
    # Both batches go through the current example first, then through the draw.
    walked = softmax_step(softmax_step(after_first, second, 1), first, 0)
    one = after_first + 0.7 * (walked - after_first)
    walked = softmax_step(softmax_step(one, second, 1), first, 0)
    two = one + 0.7 * (walked - one)
    np.testing.assert_allclose(found, after_first + 0.4 * (two - after_first), rtol=1e-14)


def test_with_gamma_1_it_is_plain_sgd_over_what_was_drawn_and_the_example():
    method = build({"gamma": 1.0, "draws": 3, "memory_size": 4, "batch_size": 1}, sizes=(2, 3, 2))
    inputs, labels = numbered(1, 12)
    inputs[..., 0] /= 12
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    flat = method.parameters[0].clone().split([6, 3, 6, 2])
    with torch.no_grad():
        model.double()[0].weight.copy_(flat[0].view(2, 3).T)
        model[0].bias.copy_(flat[1])
        model[2].weight.copy_(flat[2].view(3, 2).T)
        model[2].bias.copy_(flat[3])
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    method.begin_task(0, labels)
    for step in range(12):
        drawn = draws_of(method, step)
        current = Batch(inputs[:, step : step + 1], labels[:, step : step + 1])
        for example in [*drawn, current]:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(example.inputs[0]), example.labels[0])
            loss.backward()
            optimizer.step()
        mix = observe(method, inputs, labels, step)
        torch.testing.assert_close(mix.losses[0, 0], loss.detach())
    trained = [model[0].weight.T, model[0].bias, model[2].weight.T, model[2].bias]
    expected = torch.cat([part.detach().reshape(-1) for part in trained])
    torch.testing.assert_close(method.parameters[0], expected)


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_the_reservoir_against_one_that_is_watched_from_outside(algorithm):
    """300 runs: a list for each, changed as its table changes, must be a fair reservoir."""
    runs, count, capacity, draws = 300, 24, 4, 6
    settings = {"algorithm": algorithm, "draws": draws, "memory_size": capacity, "batch_size": 1}
    method = build(settings | {"batches": 2}, seeds=range(runs))
    inputs, labels = numbered(runs, count)
    held = [[] for _ in range(runs)]
    places_read = np.zeros(capacity)
    for task, half in enumerate((slice(0, 12), slice(12, 24))):
        method.begin_task(task, labels[:, half])
        for step in range(12):
            number = 12 * task + step
            drawn = draws_of(method, step)
            assert len(drawn) == min(draws, number, capacity)
            for run_ in range(runs):
                for example in drawn:
                    places_read[held[run_].index(int(example.inputs[run_, 0, 0]))] += number > 4
            observe(method, inputs[:, half], labels[:, half], step)
            table = method.memory.store["inputs"][:, :capacity, 0].long().tolist()
            for mine, now in zip(held, table, strict=True):
                changed = [i for i in range(len(mine)) if mine[i] != now[i]]
                if len(mine) < capacity:
                    mine.append(number)
                elif changed:
                    mine[changed[0]] = number
                assert mine == now[: len(mine)]
    # Every example is held by 300 * 4 / 24 = 50 runs, give or take 4.5 standard deviations of 6.5.
    times = np.bincount(np.concatenate(held), minlength=count)
    assert np.abs(times - 50).max() < 29
    # Each of the four places is read by a quarter of about 300 * 19 * 4 draws.
    assert np.abs(places_read / places_read.sum() - 0.25).max() < 0.02


def test_draws_are_with_replacement():
    method = build({"draws": 3, "memory_size": 3, "batch_size": 1}, seeds=range(40))
    inputs, labels = numbered(40, 5)
    method.begin_task(0, labels)
    for step in range(4):
        observe(method, inputs, labels, step)
    drawn = torch.cat([example.inputs[:, :, 0] for example in draws_of(method, 4)], 1)
    different = [len(set(row)) for row in drawn.tolist()]
    assert set(different) == {1, 2, 3}


def test_a_batch_of_five_is_five_batches_of_one():
    inputs, labels = numbered(1, 10)
    weights = []
    for size in (5, 1):
        method = build({"draws": 2, "memory_size": 3, "batch_size": size})
        method.begin_task(0, labels)
        for step in range(10 // size):
            observe(method, inputs, labels, step)
        weights.append(method.parameters)
    assert torch.equal(*weights)


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_an_example_is_learned_without_a_look_at_the_device(algorithm, monkeypatch):
    """As it has to be where it is recorded once and replayed."""
    settings = {"algorithm": algorithm, "draws": 3, "batches": 2, "memory_size": 4}
    method = build(settings, seeds=(3, 4))
    inputs, labels = numbered(2, 12)
    work = CudaGraphFunction.__call__

    def watched(self, *given):
        with no_reads("cpu"):
            return work(self, *given)

    monkeypatch.setattr(CudaGraphFunction, "__call__", watched)
    method.begin_task(0, labels)
    observe(method, inputs, labels, 0)


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_what_a_recorded_example_reads_stays_in_its_place(algorithm):
    """From the second example on, when there is a table, up to the end of the run."""
    settings = {"algorithm": algorithm, "draws": 3, "memory_size": 4, "batch_size": 1}
    method = build(settings | {"batches": 2}, seeds=(3, 4))
    inputs, labels = numbered(2, 6)

    def places():
        store = method.memory.store
        held = (method.parameters, method.buffers, store["inputs"], store["labels"])
        return [tensor.data_ptr() for tensor in held]

    seen = []
    for task in range(3):
        method.begin_task(task, labels)
        for step in range(6):
            observe(method, inputs, labels, step)
            seen.append(places())
    assert all(now == seen[0] for now in seen)


def forgets(method, marks, monkeypatch):
    """Return in which tasks what was recorded is dropped, where the stream marks outputs so."""
    forgotten = []
    monkeypatch.setattr(CudaGraphFunction, "forget", lambda _: forgotten.append(task))
    _, labels = numbered(1, 4)
    for task, marked in enumerate(marks, start=1):
        method._stream.outputs = lambda labels, marked=marked: labels if marked else None
        method.begin_task(task, labels)
    return forgotten


def test_other_marks_of_outputs_are_not_missed(monkeypatch):
    method = build({"draws": 2})
    method.begin_task(0, numbered(1, 4)[1])
    marks = [False, True, True, False, False]
    assert forgets(method, marks, monkeypatch) == [2, 3, 4]


def test_nor_are_those_of_a_task_that_was_gone_on_with(monkeypatch):
    saved, resumed = build({"draws": 2}), build({"draws": 2})
    saved.begin_task(0, numbered(1, 4)[1])
    resumed.load_state_dict(saved.state_dict())
    assert forgets(resumed, [False, False], monkeypatch) == [1]


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_a_run_saved_in_the_middle_of_a_task_goes_on_bit_for_bit(algorithm):
    settings = {"algorithm": algorithm, "draws": 3, "memory_size": 4, "batch_size": 2}
    inputs, labels = numbered(2, 10)
    original = build(settings | {"batches": 2}, seeds=(3, 4))
    original.begin_task(0, labels)
    for step in range(5):
        observe(original, inputs, labels, step)
    original.begin_task(1, labels)
    for step in range(2):
        observe(original, inputs, labels, step)
    saved = original.state_dict()
    for step in range(2, 5):
        observe(original, inputs, labels, step)
    resumed = build(settings | {"batches": 2}, seeds=(3, 4))
    resumed.load_state_dict(saved)
    for step in range(2, 5):
        observe(resumed, inputs, labels, step)
    for method in (original, resumed):
        method.begin_task(2, labels)
        observe(method, inputs, labels, 0)
    assert torch.equal(original.parameters, resumed.parameters)
    assert torch.equal(original.memory.store["inputs"], resumed.memory.store["inputs"])


@pytest.mark.usefixtures("double_mnist")
def test_on_permuted_mnist_alone_or_stacked_with_the_authors_settings(few_mnist):
    few_mnist(200)
    chosen = specify("permuted-mnist", "mer").settings
    assert [chosen[name] for name in ("learning_rate", "gamma", "draws", "memory_size")] == [
        0.03, 0.1, 50, 5120,
    ]  # fmt: skip
    overrides = {"draws": "4", "memory_size": "20"}
    spec = specify("permuted-mnist", "mer", tasks=2, examples=25, overrides=overrides)
    stacked = run(spec, [0, 1])
    assert stacked[0].facts["memory_bytes"] == 20 * (784 + 8)
    for seed, together in enumerate(stacked):
        (alone,) = run(spec, [seed])
        assert (alone.accuracy, alone.curve) == (together.accuracy, together.curve)


def test_impossible_settings_are_refused():
    for name, value in [("gamma", "0"), ("draws", "-1"), ("memory_size", "0"), ("beta", "nan")]:
        with pytest.raises(EngramError, match=name):
            specify("permuted-mnist", "mer", overrides={name: value})
