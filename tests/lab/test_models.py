"""The stacked network against plain torch, in float64."""

import math

import pytest
import torch
from torch.nn import functional

from engram.lab.engine import Batch, Rows, cross_entropy, gram
from engram.lab.networks import MLP
from engram.lab.plan import generator

pytestmark = pytest.mark.numerical


def plain(network, parameters, inputs):
    """One run's logits from ordinary operations that autograd can follow."""
    hidden = inputs
    layers = list(network.layers(parameters.unsqueeze(0)))
    for index, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight[0] + bias[0]
        if index < len(layers) - 1:
            hidden = hidden.relu()
    return hidden


@pytest.fixture
def stack():
    torch.manual_seed(0)
    network = MLP((6, 5, 4, 3))
    parameters = torch.randn(3, network.size, dtype=torch.float64)
    inputs = torch.randn(3, 7, 6, dtype=torch.float64)
    labels = torch.randint(0, 3, (3, 7))
    return network, parameters, Batch(inputs, labels)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_hand_written_backward_equals_autograd(stack, weighted):
    network, parameters, batch = stack
    if weighted:
        shares = torch.rand(3, 7, dtype=torch.float64)
        batch = batch._replace(weights=shares / shares.sum(-1, keepdim=True))
    row = torch.full_like(parameters, torch.nan)
    losses = Rows(network, parameters).gradient(batch, row)
    for run in range(3):
        leaf = parameters[run].clone().requires_grad_()
        each = functional.cross_entropy(
            plain(network, leaf, batch.inputs[run]), batch.labels[run], reduction="none"
        )
        loss = (each * batch.weights[run]).sum() if weighted else each.mean()
        (expected,) = torch.autograd.grad(loss, leaf)
        torch.testing.assert_close(losses[run], loss.detach())
        torch.testing.assert_close(row[run], expected)


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_a_batch_have_rows_of_their_own(stack, runs, weighted):
    network, parameters, batch = stack
    parameters, inputs, labels = parameters[:runs], batch.inputs[:runs, :6], batch.labels[:runs, :6]
    weights = torch.rand(runs, 6, dtype=torch.float64) if weighted else None
    rows = Rows(network, parameters)
    together = torch.full((runs, 3, network.size), torch.nan, dtype=torch.float64)
    losses = rows.gradients(Batch(inputs, labels, weights, groups=3), together)
    for group in range(3):
        part = slice(2 * group, 2 * group + 2)
        alone = torch.empty_like(parameters)
        shares = None if weights is None else weights[:, part]
        loss = rows.gradient(Batch(inputs[:, part], labels[:, part], shares), alone)
        torch.testing.assert_close(losses[:, group], loss)
        torch.testing.assert_close(together[:, group], alone)


def test_padding_of_weight_zero_changes_nothing(stack):
    network, parameters, batch = stack
    rows = Rows(network, parameters)
    short = Batch(batch.inputs[:, :4], batch.labels[:, :4])
    weights = torch.zeros(3, 7, dtype=torch.float64)
    weights[:, :4] = 1 / 4
    one, other = torch.empty_like(parameters), torch.empty_like(parameters)
    torch.testing.assert_close(
        rows.gradient(short, one), rows.gradient(batch._replace(weights=weights), other)
    )
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("runs", [1, 3])
def test_prediction_puts_columns_where_they_belong(stack, runs):
    network, parameters, _ = stack
    parameters = parameters[:runs]
    torch.manual_seed(1)
    columns = torch.stack([torch.randperm(6)[:4] for _ in range(runs)])
    inputs = torch.randn(5, 4, dtype=torch.float64)
    logits = network.predict(parameters, inputs, columns)
    for run in range(runs):
        full = torch.zeros(5, 6, dtype=torch.float64)
        full[:, columns[run]] = inputs
        torch.testing.assert_close(logits[run], plain(network, parameters[run], full))


def test_prediction_without_columns_takes_inputs_as_they_are(stack):
    network, parameters, batch = stack
    logits = network.predict(parameters, batch.inputs[0], None)
    torch.testing.assert_close(logits[1], plain(network, parameters[1], batch.inputs[0]))


def test_the_paper_s_network_and_its_initial_values():
    network = MLP()
    assert network.size == 269_322
    parameters = network.initialise(generator(0, "parameters"))
    for weight, bias in network.layers(parameters.unsqueeze(0)):
        assert weight.abs().max() <= 0.2
        assert (bias == 0.1).all()
    first = next(iter(network.layers(parameters.unsqueeze(0))))[0]
    # A standard normal cut at two standard deviations has a standard deviation of 0.8796.
    assert first.std().item() == pytest.approx(0.08796, rel=0.01)
    assert first.mean().item() == pytest.approx(0, abs=5e-4)


def test_the_gram_matrix_holds_dot_products():
    rows = torch.randn(2, 3, 50, dtype=torch.float64)
    expected = torch.einsum("rid,rjd->rij", rows, rows)
    torch.testing.assert_close(gram(rows), expected)


def test_cross_entropy_of_certain_and_uniform_predictions():
    logits = torch.tensor([[[100.0, 0.0]], [[0.0, 0.0]]])
    losses, gradient = cross_entropy(logits, Batch(torch.empty(0), torch.zeros(2, 1).long()))
    assert losses.flatten().tolist() == pytest.approx([0, math.log(2)])
    torch.testing.assert_close(gradient[1, 0], torch.tensor([-0.5, 0.5]))


def test_weights_beyond_two_deviations_are_drawn_again_until_none_is():
    """In turns over all of them, in order: results in stores depend on these very draws."""
    source, network = generator(0, "test"), MLP((50, 40))
    expected = source.standard_normal(50 * 40).tolist()
    while wrong := [place for place, value in enumerate(expected) if abs(value) > 2]:
        for place in wrong:
            expected[place] = source.standard_normal()
    drawn = network.initialise(generator(0, "test"))
    ((weight, _),) = network.layers(drawn.unsqueeze(0))
    assert torch.equal(weight.flatten(), torch.tensor([0.1 * value for value in expected]))
