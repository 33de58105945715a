"""What is not finite is refused before a step is taken, with the name of its row."""

import math

import pytest
import torch
from gradient_oracles import POOLED, RULES, examples, loss_on, network, sgd
from torch import nn
from torch.amp import GradScaler

import engram
from engram.errors import EngramError
from engram.gradients import backward_each
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal, Rule

COMPARING = [MEGA1(), MEGA1(test="reference"), MEGA2()]
ROWS = ["current", "memory"]


def kind(value):
    return type(value).__name__ if isinstance(value, Rule) else value.__name__


def by_mixer(model, rule, losses, **options):
    mixer = engram.GradientMixer(sgd(model), rule, **options)
    for row, (loss, value) in zip(ROWS, losses, strict=False):
        mixer.backward(loss, row=row, value=value)
    return mixer.mix()


def by_backward(model, rule, losses, **options):
    given = [loss for loss, _ in losses]
    compared = [loss if value is None else value for loss, value in losses]
    return engram.backward(given, model.parameters(), rule, values=compared, **options)


def by_backward_each(model, rule, losses, **options):
    pairs = [(loss, loss if value is None else value) for loss, value in losses]
    return backward_each([*pairs[1:], pairs[0]], model.parameters(), rule, **options)


WAYS = [by_mixer, by_backward, by_backward_each]
each_way = pytest.mark.parametrize("way", WAYS, ids=kind)
each_rule = pytest.mark.parametrize("rule", RULES, ids=kind)


def off(way):
    return {"check_finite": 0 if way is by_mixer else False}


def finite(model, row):
    return loss_on(model, examples(ROWS.index(row), 4))


def bad_loss(model, row, number=math.nan):
    return finite(model, row) * number


def bad_gradient(model, row):
    """Return a finite loss whose gradient is not finite: the root has none at 0."""
    return finite(model, row) + (model[0].weight * 0).sum().sqrt()


def losses(model, wrong, trouble):
    return [((trouble if row == wrong else finite)(model, row), None) for row in ROWS]


def untouched(model):
    return all(parameter.grad is None for parameter in model.parameters())


@each_way
@each_rule
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("row", ROWS)
def test_a_loss_that_is_not_finite_is_refused_by_the_name_of_its_row(way, rule, number, row):
    model = network()
    given = losses(model, row, lambda *both: bad_loss(*both, number))
    with pytest.raises(EngramError, match=f"^The row '{row}' has a loss of {number}; the step is"):
        way(model, rule, given)
    assert untouched(model)


@each_way
@each_rule
def test_a_refusal_leaves_no_gradient_of_the_step_before(way, rule):
    model = network()
    way(model, rule, [(finite(model, row), None) for row in ROWS])
    with pytest.raises(EngramError, match="is refused"):
        way(model, rule, losses(model, "current", bad_loss))
    assert untouched(model)


@each_way
@each_rule
@pytest.mark.parametrize("row", ROWS)
def test_a_gradient_that_is_not_finite_is_refused(way, rule, row):
    model = network()
    if isinstance(rule, Current) and row == "memory" and way is not by_backward:
        return  # it is weighed by 0, and the rest is mixed as ever
    words = f"The row '{row}' has a gradient"
    if way is by_backward and not rule.needs_gram:  # one pass for both
        words = r"The gradient of the rows \['current', 'memory'\] is not finite"
    with pytest.raises(EngramError, match=words):
        way(model, rule, losses(model, row, bad_gradient))
    assert untouched(model)


@each_way
@pytest.mark.parametrize("rule", [AGEM(), GEM(), MEGA2()], ids=kind)
def test_a_gradient_whose_length_is_out_of_range_cannot_be_compared(way, rule):
    model = network(0, torch.float32)
    given = [((model[0].weight * scale).sum().abs(), None) for scale in (1.0, 1e30)]
    with pytest.raises(EngramError, match="The row 'memory' has a gradient of length inf"):
        way(model, rule, given)
    assert untouched(model)


@each_way
@pytest.mark.parametrize("rule", [Equal(), MEGA1()], ids=kind)
def test_a_gradient_may_be_large_where_it_is_not_compared(way, rule):
    model = network(0, torch.float32)
    given = [((model[0].weight * scale).sum().abs(), 1.0) for scale in (1.0, 1e30)]
    way(model, rule, given)
    assert 1e29 < model[0].weight.grad.abs().max() < math.inf


@each_way
@pytest.mark.parametrize("rule", COMPARING, ids=repr)
@pytest.mark.parametrize("row", ROWS)
def test_a_negative_value_is_refused_where_values_are_compared(way, rule, row):
    model = network()
    given = losses(model, row, lambda *both: bad_loss(*both, -1))
    words = f"The row '{row}' has a value of -.*{type(rule).__name__} compares values of 0 or more"
    with pytest.raises(EngramError, match=words):
        way(model, rule, given)
    assert untouched(model)
    with pytest.raises(EngramError, match="a value of -2, and"):
        way(model, rule, [(finite(model, "current"), -2.0)])  # with nothing remembered as well


@each_way
@pytest.mark.parametrize(
    "rule", [Current(), Equal(), AGEM(), GEM(), MEGA2(balance=False)], ids=repr
)
def test_a_negative_value_is_taken_where_values_are_not_compared(way, rule):
    model = network()
    way(model, rule, losses(model, "memory", lambda *both: bad_loss(*both, -1)))
    assert not untouched(model)


@each_way
@each_rule
def test_without_the_check_what_is_not_finite_stays_visible(way, rule):
    model = network()
    mix = way(model, rule, losses(model, "memory", bad_loss), **off(way))
    assert mix.weights.isnan().all()
    assert not model[0].weight.grad.isfinite().any()


@each_way
def test_a_rule_that_gives_no_weights_is_refused(way):
    class Broken(MEGA2):
        def weigh_pair(self, *_):
            return math.nan, 1.0

    model = network()
    with pytest.raises(EngramError, match=r"Broken gives the rows .* the weights \[nan, 1.0\]"):
        way(model, Broken(), losses(model, None, finite))
    assert untouched(model)


@pytest.mark.parametrize("rule", POOLED, ids=kind)
def test_after_a_refusal_the_mixer_takes_the_next_step(rule):
    model, twin = network(), network()
    mixer, expected = (engram.GradientMixer(sgd(each), rule) for each in (model, twin))
    for row in ROWS:
        mixer.backward(bad_loss(model, row), row=row)
    with pytest.raises(EngramError, match="a loss of nan"):
        mixer.mix()
    for each, mixing in ((model, mixer), (twin, expected)):
        for row in ROWS:
            mixing.backward(finite(each, row), row=row)
        mixing.mix()
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    assert all(torch.equal(own.grad, other.grad) for own, other in pairs)


def test_a_scaler_that_is_switched_off_leaves_the_check_to_the_mixer():
    model = network(0, torch.float32)
    for enabled in (False, True):
        scaler = GradScaler("cpu", init_scale=4.0, enabled=enabled)
        mixer = engram.GradientMixer(sgd(model), MEGA2(), scaler=scaler)
        mixer.backward(loss_on(model, examples(0, 4, torch.float32)) * math.nan)
        if enabled:
            assert mixer.mix().weights.isnan().all()
        else:
            with pytest.raises(EngramError, match="a loss of nan"):
                mixer.mix()


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=kind)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_checked_without_an_overflow_of_its_own(rule, dtype):
    """A hundred elements of 30,000 are longer than what float16 can hold."""
    weight = nn.Parameter(torch.zeros(100, dtype=dtype))
    engram.backward([(weight * 30_000).sum()], [weight], rule)
    assert weight.grad.float().abs().max() < 31_000
    with pytest.raises(EngramError, match="a gradient"):
        engram.backward([(weight * math.inf).sum().nan_to_num()], [weight], rule)


def test_sparse_gradients_of_one_pass_are_checked():
    model = nn.Embedding(10, 3, sparse=True)
    engram.backward([model(torch.tensor([1, 1])).square().sum()], model.parameters(), MEGA1())
    assert model.weight.grad.is_sparse
    loss = (model(torch.tensor([1, 2])) * math.inf).sum().nan_to_num().abs()
    with pytest.raises(EngramError, match="The row 'current' has a gradient that is not finite"):
        engram.backward([loss], model.parameters(), MEGA1())


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "often", None])
def test_the_interval_is_a_number_of_steps(wrong):
    with pytest.raises(EngramError, match=r"check_finite is .*; give a number of steps, or 0"):
        engram.GradientMixer(sgd(network()), MEGA2(), check_finite=wrong)
