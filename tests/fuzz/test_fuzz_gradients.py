"""Losses, rows and values of any kind: a mixture of gradients, or one sentence."""

import math

import torch
from fuzz_cases import attempt, generated, refused
from fuzz_junk import junk, mostly
from hypothesis import strategies as st

from engram import GradientMixer, backward, rules
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

RULES = [AGEM(), GEM(), MEGA1(), MEGA2(), Current(), Equal()]
LOSSES = [  # of two parameters
    lambda both: both[0].square().sum(),
    lambda both: both[0].sum() + both[1].sum(),
    lambda both: both[1].square().mean(),
    lambda both: 1e30 * both[0].sum(),
    lambda both: (both[0] * math.nan).sum(),
    lambda both: 2 * both[0],  # not one number
    lambda both: both[0].sum().detach(),
    lambda both: both[0].double().sum(),
    lambda both: both[0].to(torch.complex64).sum(),
    lambda both: both[0].to("meta").sum(),
    lambda both: both[0].sum()[None],
]
loss = st.sampled_from([*LOSSES[:3] * 6, *LOSSES])
rule = mostly(st.sampled_from([*RULES * 3, MEGA2]))
value = mostly(st.floats(0, 10), st.none(), st.just(torch.tensor([2.0])))


def _parameters():
    return torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5])), torch.nn.Parameter(torch.eye(2))


def _check(mix, parameters):
    assert isinstance(mix.weights, torch.Tensor)
    assert mix.weights.shape == mix.losses.shape
    for parameter in parameters:
        assert parameter.grad is None or parameter.grad.shape == parameter.shape


@generated(
    350,
    losses=mostly(st.lists(loss, min_size=1, max_size=3), st.lists(mostly(loss), max_size=2)),
    which=mostly(st.sampled_from(["both", "both", "first"]), st.lists(junk, max_size=1)),
    rule=rule,
    values=st.none() | st.none() | mostly(st.lists(value, min_size=1, max_size=3)),
)
def test_backward_mixes_or_refuses(losses, which, rule, values):
    parameters = _parameters()
    made = losses
    if isinstance(losses, list):
        own = set(LOSSES)
        made = [each(parameters) if callable(each) and each in own else each for each in losses]
    named = {"both": parameters, "first": parameters[:1]}
    chosen = named.get(which, which) if isinstance(which, str) else which
    mix = attempt(lambda: backward(made, chosen, rule, values=values))
    if not refused(mix):
        _check(mix, parameters)


rows = st.lists(
    st.tuples(loss, mostly(st.sampled_from(["current", "memory", 0, 1])), value),
    min_size=1,
    max_size=4,
)


@generated(250, rows=rows, rule=rule, optimizer=st.booleans() | junk)
def test_the_mixer_mixes_or_refuses_and_can_go_on(rows, rule, optimizer):
    parameters = _parameters()
    plain = torch.optim.SGD(parameters, lr=0.1)
    chosen = plain if isinstance(optimizer, bool) else optimizer
    mixer = attempt(lambda: GradientMixer(chosen, rule))
    if refused(mixer):
        return
    for each, row, told in rows:
        attempt(
            lambda each=each, row=row, told=told: mixer.backward(
                each(parameters), row=row, value=told
            )
        )
    mix = attempt(mixer.mix)
    if not refused(mix):
        _check(mix, parameters)
    mixer.backward(parameters[0].square().sum())  # a refused step leaves nothing behind
    assert mixer.mix().weights.tolist() == [1]
    assert torch.equal(parameters[0].grad, 2 * parameters[0].detach())


@generated(200, rule=junk, loss=loss)
def test_what_is_no_rule_is_refused(rule, loss):
    parameters = _parameters()
    assert not isinstance(rule, rules.Rule)
    assert refused(attempt(lambda: backward([loss(parameters)], parameters, rule)))
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    assert refused(attempt(lambda: GradientMixer(optimizer, rule)))
