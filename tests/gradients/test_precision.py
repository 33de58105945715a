"""Mixed precision changes what is stored, never what the rule sees."""

import pytest
import torch
from gradient_oracles import POOLED, examples, gradient, loss_on, network, sgd, written
from torch.amp import GradScaler

import engram
from engram.rules import AGEM, MEGA2


def name(rule):
    return type(rule).__name__


def step(model, rule, scaler=None, dtype=torch.float32):
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, rule, scaler=scaler)
    mixer.backward(loss_on(model, examples(2, 16, dtype)), row="memory")
    mixer.backward(loss_on(model, examples(1, 4, dtype)))
    mix = mixer.mix()
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return mix


@pytest.mark.parametrize("rule", POOLED, ids=name)
@pytest.mark.parametrize("scale", [2.0**16, 2.0**-10])
def test_a_scaler_changes_nothing(rule, scale):
    plain, scaled = network(0, torch.float32), network(0, torch.float32)
    expected = step(plain, rule)
    mix = step(scaled, rule, GradScaler("cpu", init_scale=scale))
    torch.testing.assert_close(mix.weights, expected.weights)
    torch.testing.assert_close(mix.losses, expected.losses)
    if rule.needs_gram:
        torch.testing.assert_close(mix.gram, expected.gram)
    weights = zip(plain.parameters(), scaled.parameters(), strict=True)
    for own, other in weights:
        torch.testing.assert_close(other, own)


def test_a_scaler_that_is_switched_off_changes_nothing():
    plain, scaled = network(0, torch.float32), network(0, torch.float32)
    step(plain, MEGA2())
    step(scaled, MEGA2(), GradScaler("cpu", enabled=False))
    assert torch.equal(scaled[0].weight, plain[0].weight)


@pytest.mark.parametrize("rule", POOLED, ids=name)
@pytest.mark.parametrize("row", ["current", "memory"])
def test_an_overflow_is_left_for_the_scaler_to_skip(rule, row):
    model = network(0, torch.float32)
    before = model[0].weight.clone()
    optimizer, scaler = sgd(model), GradScaler("cpu", init_scale=4.0)
    mixer = engram.GradientMixer(optimizer, rule, scaler=scaler)
    for each, seed in [("memory", 1), ("current", 2)]:
        loss = loss_on(model, examples(seed, 4, torch.float32))
        # The loss is finite, and its gradient is not: what a narrow format does to a large one.
        scaled = loss + (model[0].weight * 0).sum().sqrt() if each == row else loss
        mixer.backward(scaled, row=each, value=loss)
    mixer.mix()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model[0].weight, before)
    assert scaler.get_scale() == 2.0


@pytest.mark.parametrize("rule", [AGEM(), MEGA2()], ids=name)
def test_half_precision_gradients_are_summed_in_float32(rule):
    model = network(0, torch.bfloat16)
    batches = [examples(1, 4, torch.bfloat16), examples(2, 16, torch.bfloat16)]
    rows = torch.stack(
        [gradient(loss_on(model, batch), model.parameters()).double() for batch in batches]
    )
    mix = step(model, rule, dtype=torch.bfloat16)
    assert mix.gram.dtype == mix.losses.dtype == mix.weights.dtype == torch.float32
    torch.testing.assert_close(mix.gram.double(), rows @ rows.T, rtol=1e-6, atol=1e-9)
    # One rounding to bfloat16, of the mixture, and none of the weights.
    expected = (mix.weights.double() @ rows).to(torch.bfloat16)
    torch.testing.assert_close(written(model.parameters()), expected, rtol=2**-8, atol=0)
    assert all(parameter.grad.dtype == torch.bfloat16 for parameter in model.parameters())


def test_autocast_leaves_the_gram_matrix_alone():
    """A cast of the dot products to bfloat16 would cost five of their digits."""
    model = network(0, torch.float32)
    exact = step(model, MEGA2())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixer = engram.GradientMixer(sgd(model), MEGA2())
        parameters = list(model.parameters())
        for row, seed in [("memory", 2), ("current", 1)]:
            mixer.backward(loss_on(model, examples(seed, 4, torch.float32)), row=row)
        losses = [loss_on(model, examples(seed, 4, torch.float32)) for seed in (1, 2)]
        rows = torch.stack([gradient(loss, parameters).double() for loss in losses])
        mix = mixer.mix()
    assert mix.gram.dtype == exact.gram.dtype
    torch.testing.assert_close(mix.gram.double(), (rows @ rows.T), rtol=1e-5, atol=1e-8)
