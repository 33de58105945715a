"""Whatever the optimiser holds is the vector: frozen, added, tied and unreached parameters."""

import pytest
import torch
from gradient_oracles import (
    POOLED,
    examples,
    gradient,
    loss_on,
    network,
    sgd,
    update_by_hand,
    written,
)
from torch import nn

import engram
from engram.rules import AGEM, MEGA1, MEGA2

BATCH, PAST = examples(1, 4), examples(2, 16)


def name(rule):
    return type(rule).__name__


def mixed(optimizer, rule, losses):
    """Mix losses that are computed by functions, the current one last."""
    mixer = engram.GradientMixer(optimizer, rule)
    for row, loss in zip(["memory", "current"], reversed(losses), strict=True):
        mixer.backward(loss(), row=row)
    return mixer.mix()


def check(model, trained, rule, losses):
    """Compare the mixture over the trained parameters with the formulas."""
    values = [loss() for loss in losses]
    expected = update_by_hand(rule, values, [gradient(value, trained) for value in values])
    optimizer = sgd(model)
    mixed(optimizer, rule, losses)
    torch.testing.assert_close(written(trained), expected, rtol=1e-9, atol=1e-12)
    optimizer.step()


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_frozen_parameters_are_left_out(rule):
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    losses = [lambda: loss_on(model, BATCH), lambda: loss_on(model, PAST)]
    check(model, list(model[2].parameters()), rule, losses)
    assert model[0].weight.grad is None
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_freezing_a_parameter_stops_it_at_once(rule):
    """No stale gradient is left for the optimiser to follow."""
    model = network()
    optimizer = sgd(model)
    losses = [lambda: loss_on(model, BATCH), lambda: loss_on(model, PAST)]
    mixed(optimizer, rule, losses)
    optimizer.step()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    mixed(optimizer, rule, losses)
    optimizer.step()
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_low_rank_adapters_are_the_whole_vector(rule):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = network().requires_grad_(False)
            self.down = nn.Parameter(torch.randn(5, 2, dtype=torch.float64))
            self.up = nn.Parameter(torch.randn(2, 3, dtype=torch.float64))

        def forward(self, inputs):
            return self.base(inputs) + inputs @ self.down @ self.up

    model = Adapted()
    losses = [lambda: loss_on(model, BATCH), lambda: loss_on(model, PAST)]
    check(model, [model.down, model.up], rule, losses)
    assert all(parameter.grad is None for parameter in model.base.parameters())


def heads(count=2):
    torch.manual_seed(0)
    body = nn.Linear(5, 4, dtype=torch.float64)
    tops = nn.ModuleList(nn.Linear(4, 3, dtype=torch.float64) for _ in range(count))
    return nn.ModuleDict({"body": body, "heads": tops})


def head_loss(model, head, batch):
    inputs, classes = batch
    logits = model["heads"][head](torch.tanh(model["body"](inputs)))
    return nn.functional.cross_entropy(logits, classes)


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_a_parameter_that_one_row_reaches_counts_as_zero_in_the_other(rule):
    model = heads()
    losses = [lambda: head_loss(model, 1, BATCH), lambda: head_loss(model, 0, PAST)]
    check(model, list(model.parameters()), rule, losses)


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_a_parameter_that_no_row_reaches_keeps_no_gradient(rule):
    model = heads(3)
    mixed(sgd(model), rule, [lambda: head_loss(model, 1, BATCH), lambda: head_loss(model, 0, PAST)])
    assert model["heads"][2].weight.grad is None
    assert model["heads"][1].weight.grad is not None

    losses = [head_loss(model, 1, BATCH), head_loss(model, 0, PAST)]
    engram.backward(losses, model.parameters(), rule)
    assert model["heads"][2].weight.grad is None


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_a_head_may_be_added_between_steps_and_between_rows(rule):
    model = heads(1)
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, rule)
    mixer.backward(head_loss(model, 0, BATCH))
    mixer.mix()
    optimizer.step()

    mixer.backward(head_loss(model, 0, PAST), row="memory")
    model["heads"].append(nn.Linear(4, 3, dtype=torch.float64))
    optimizer.add_param_group({"params": model["heads"][1].parameters()})
    mixer.backward(head_loss(model, 1, BATCH))
    mixer.mix()

    losses = [head_loss(model, 1, BATCH), head_loss(model, 0, PAST)]
    rows = [gradient(loss, model.parameters()) for loss in losses]
    expected = update_by_hand(rule, losses, rows)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_tied_weights_count_once(rule):
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 3)).double()
    model[2].weight = model[0].weight
    losses = [lambda: loss_on(model, BATCH), lambda: loss_on(model, PAST)]
    check(model, list(model.parameters()), rule, losses)

    values = [loss() for loss in losses]
    rows = [gradient(value, model.parameters()) for value in values]
    twice = [*model.parameters(), model[0].weight]
    engram.backward(values, twice, rule)
    expected = update_by_hand(rule, values, rows)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)

    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = torch.optim.SGD(twice, lr=0.1)
    mixed(optimizer, rule, losses)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [AGEM(), MEGA2()], ids=name)
def test_gradients_that_are_not_contiguous_count_alike(rule):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(36, 3)).double()
    model = model.to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(20, 3, 5, 5, generator=generator, dtype=torch.float64)
    images = images.to(memory_format=torch.channels_last)
    classes = torch.randint(3, (20,), generator=generator)
    losses = [
        lambda: loss_on(model, (images[:4], classes[:4])),
        lambda: loss_on(model, (images[4:], classes[4:])),
    ]
    check(model, list(model.parameters()), rule, losses)
    assert not model[0].weight.grad.is_contiguous()


def test_what_grad_held_before_is_replaced():
    model = network()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e6)
    mixed(sgd(model), MEGA1(), [lambda: loss_on(model, BATCH), lambda: loss_on(model, PAST)])
    assert written(model.parameters()).abs().max() < 1e3


def test_a_mixture_of_precisions_is_one_vector():
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3).double())

    def loss(batch):
        inputs, classes = batch
        return nn.functional.cross_entropy(model[1](model[0](inputs.float()).double()), classes)

    losses = [lambda: loss(BATCH), lambda: loss(PAST)]
    values = [each() for each in losses]
    rows = [gradient(value, model.parameters()) for value in values]
    mixed(sgd(model), MEGA2(), losses)
    expected = update_by_hand(MEGA2(), values, rows)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("narrow_first", [True, False])
def test_a_gram_matrix_is_as_precise_as_its_narrowest_gradient(narrow_first):
    narrow = torch.ones(3, requires_grad=True)
    wide = torch.ones(3, dtype=torch.float64, requires_grad=True)
    losses = [narrow.sum() + wide.sum(), 2 * narrow.sum() + wide.sum()]
    parameters = [narrow, wide] if narrow_first else [wide, narrow]
    assert engram.backward(losses, parameters, MEGA2()).gram.dtype == torch.float32


@pytest.mark.parametrize("rule", POOLED, ids=name)
def test_where_nothing_is_trained_the_rows_are_weighed_as_zeros(rule):
    model = network()
    losses = [loss_on(model, BATCH), loss_on(model, PAST)]
    mix = engram.backward(losses, [], rule)  # warnings are errors here
    expected = rule(mix.losses, torch.zeros(2, 2) if rule.needs_gram else None)
    assert torch.equal(mix.weights, expected)
