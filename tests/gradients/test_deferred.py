"""A device is asked now and then: until then, bad steps are void.

The device here is the CPU, with its fused optimisers; a GPU has tests/gpu/test_finite_on_device.py.
"""

import copy
import gc
import math
import pickle

import pytest
import torch
from gradient_oracles import RULES, examples, loss_on, network
from test_gradient_copies import peak_bytes
from torch import nn, optim
from torch.amp import GradScaler

import engram
from engram.errors import EngramError
from engram.rules import AGEM, MEGA1, MEGA2, Equal
from unwaited import scattered, unwaited

ROWS = ["memory", "current"]
FUSED = {
    "sgd": lambda held: optim.SGD(held, lr=0.1, fused=True),
    "momentum": lambda held: optim.SGD(held, lr=0.1, momentum=0.9, weight_decay=0.1, fused=True),
    "adam": lambda held: optim.Adam(held, lr=0.01, fused=True),
    "adamw": lambda held: optim.AdamW(held, lr=0.01, amsgrad=True, fused=True),
    "adagrad": lambda held: optim.Adagrad(held, lr=0.1, fused=True),
}
OTHERS = {
    "sgd": lambda held: optim.SGD(held, lr=0.1, weight_decay=0.1),
    "momentum": lambda held: optim.SGD(held, lr=0.1, momentum=0.9),
    "adam": lambda held: optim.Adam(held, lr=0.01),
    "adam without epsilon": lambda held: optim.Adam(held, lr=0.01, eps=0.0),
    "rmsprop": lambda held: optim.RMSprop(held, lr=0.01),
    "one group fused": lambda held: _one_group_fused([*held]),
}
EVERY = {**{f"fused {name}": made for name, made in FUSED.items()}, **OTHERS}


def _one_group_fused(held):
    optimizer = optim.SGD(held[:1], lr=0.1, fused=True)
    optimizer.add_param_group({"params": held[1:], "fused": False})
    return optimizer


@pytest.fixture(autouse=True, params=[unwaited, scattered], ids=["torch", "addresses"])
def _on_a_device(request, monkeypatch):
    """Let the CPU be a device that is not waited for, without kernels and with them."""
    request.param(monkeypatch)


def bad_loss(model, row):
    return loss_on(model, examples(7, 4)) * (math.nan if row == "memory" else 1)


def bad_gradient(model, row):
    loss = loss_on(model, examples(7, 4))
    return loss + (model[0].weight * 0).sum().sqrt() if row == "memory" else loss


def negative(model, row):
    return loss_on(model, examples(7, 4)) * (-1 if row == "memory" else 1)


class Loop:
    """A user's own loop, with the steps that were taken so far."""

    def __init__(self, made, rule=None, **options):
        self.model = network()
        self.optimizer = made(self.model.parameters())
        self.mixer = engram.GradientMixer(self.optimizer, rule or MEGA2(), **options)

    def step(self, seed, trouble=None):
        for row in ROWS:
            good = loss_on(self.model, examples(seed + ROWS.index(row), 4))
            self.mixer.backward(good if trouble is None else trouble(self.model, row), row=row)
        mix = self.mixer.mix()
        self.optimizer.step()
        return mix

    def weights(self):
        return torch.cat([each.detach().flatten() for each in self.model.parameters()])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("name", ["fused sgd", "sgd"])
def test_a_step_of_a_device_is_that_of_the_host(rule, name, monkeypatch):
    loop, twin = (Loop(EVERY[name], rule) for _ in range(2))
    mixes = [loop.step(seed) for seed in range(3)]
    monkeypatch.undo()
    for seed, mix in enumerate(mixes):
        torch.testing.assert_close(mix.weights, twin.step(seed).weights)
    torch.testing.assert_close(loop.weights(), twin.weights())


@pytest.mark.parametrize("trouble", [bad_loss, bad_gradient, negative], ids=lambda t: t.__name__)
@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("name", EVERY)
def test_from_a_bad_step_on_nothing_is_learnt_until_the_error_tells_of_it(name, rule, trouble):
    loop = Loop(EVERY[name], rule, check_finite=5)
    loop.step(0)
    before = loop.weights()
    loop.step(1, trouble)
    assert torch.equal(loop.weights(), before)
    for seed in (2, 3):  # good ones, which are void too
        loop.step(seed)
        assert torch.equal(loop.weights(), before)
    words = {bad_loss: "a loss of nan", bad_gradient: "a gradient", negative: "a value of -"}
    row = "the row 'memory' has "
    if not rule.needs_gram and trouble is bad_gradient:
        row, words = "", {bad_gradient: "the gradient of the rows"}
    with pytest.raises(EngramError, match=f"In step 2, {row}{words[trouble]}.*up to 5"):
        loop.step(4)
    assert torch.equal(loop.weights(), before)
    assert all(parameter.grad is None for parameter in loop.model.parameters())
    assert not hasattr(loop.optimizer, "found_inf")
    for seed in range(5, 10):
        loop.step(seed)
    assert loop.weights().isfinite().all()
    assert not torch.equal(loop.weights(), before)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", FUSED)
def test_a_fused_optimiser_goes_on_as_if_the_void_steps_had_never_been(name, first):
    loop, twin = (Loop(FUSED[name], check_finite=3) for _ in range(2))
    for seed in range(first):
        loop.step(seed)
        twin.step(seed)
    for seed in range(first, 2):
        loop.step(seed, bad_loss)
    with pytest.raises(EngramError, match=f"In step {first + 1}, the row 'memory'"):
        loop.step(2, bad_loss)
    for seed in range(3, 6):
        loop.step(seed)
        twin.step(seed)
    assert torch.equal(loop.weights(), twin.weights())


@pytest.mark.parametrize("name", OTHERS)
def test_another_optimiser_keeps_a_finite_state(name):
    loop = Loop(OTHERS[name], check_finite=2)
    loop.step(0, bad_loss)
    with pytest.raises(EngramError, match="In step 1, "):
        loop.step(1, bad_loss)
    states = [each for state in loop.optimizer.state.values() for each in state.values()]
    assert all(each.isfinite().all() for each in states if isinstance(each, torch.Tensor))


def test_what_is_pending_is_told_when_asked_for():
    loop = Loop(EVERY["sgd"])
    loop.mixer.settle()
    loop.step(0)
    loop.mixer.settle()
    loop.step(1, bad_loss)
    with pytest.raises(
        EngramError, match=r"In step 2, the row 'memory' has a loss of nan; nothing"
    ):
        loop.mixer.settle()
    loop.mixer.settle()


@pytest.mark.parametrize("name", ["fused sgd", "sgd"])
def test_without_the_check_no_step_is_void(name):
    loop = Loop(EVERY[name], check_finite=0)
    loop.step(0, bad_loss)
    assert loop.weights().isnan().all()


@pytest.mark.parametrize("name", EVERY)
def test_a_step_without_the_mixer_is_the_optimisers_own(name):
    """Even while a void one is pending: nobody might ask for a long time."""
    loop = Loop(EVERY[name])
    loop.step(0, bad_loss)

    def closure():
        loop.optimizer.zero_grad()
        loss = loss_on(loop.model, examples(0, 4))
        loss.backward()
        return loss

    before = loop.weights()
    closure()
    loop.optimizer.step()
    once = loop.weights()
    assert not torch.equal(once, before)
    loop.optimizer.step(closure)
    assert not torch.equal(loop.weights(), once)


@pytest.mark.parametrize("name", ["fused adam", "adam", "fused sgd", "sgd"])
def test_the_mixer_may_work_in_the_optimisers_closure(name):
    loop = Loop(EVERY[name], check_finite=4)

    def closure(trouble=None):
        for row in ROWS:
            good = loss_on(loop.model, examples(0, 4))
            loop.mixer.backward(good if trouble is None else trouble(loop.model, row), row=row)
        return loop.mixer.mix().losses[0]

    loop.optimizer.step(closure)
    before = loop.weights()
    loop.optimizer.step(lambda: closure(bad_loss))
    loop.optimizer.step(closure)
    assert torch.equal(loop.weights(), before)
    with pytest.raises(EngramError, match="In step 2, the row 'memory'"):
        loop.optimizer.step(closure)
    loop.optimizer.step(closure)
    assert loop.weights().isfinite().all()
    assert not torch.equal(loop.weights(), before)


@pytest.mark.parametrize("name", ["fused sgd", "sgd"])
def test_the_hooks_go_with_the_mixer(name):
    loop = Loop(EVERY[name])
    loop.step(0)
    optimizer = loop.optimizer
    hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    assert [*map(len, hooks)] == [1, 1]
    loop.step(1)
    assert [*map(len, hooks)] == [1, 1]
    del loop
    gc.collect()
    assert [*map(len, hooks)] == [0, 0]


def test_a_step_that_breaks_off_leaves_no_flag_for_the_next():
    loop = Loop(FUSED["sgd"])
    loop.step(0)

    def breaks():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        loop.optimizer.step(breaks)
    loop.step(1)
    assert not hasattr(loop.optimizer, "found_inf")


@pytest.mark.parametrize("name", FUSED)
def test_a_scalers_own_flag_stays_its_own(name):
    model = network(0, torch.float32)
    optimizer, scaler = FUSED[name](model.parameters()), GradScaler("cpu", init_scale=4.0)
    mixer = engram.GradientMixer(optimizer, MEGA2())  # which is not told of the scaler
    for step in range(3):
        before = model[0].weight.clone()
        for row in ROWS:
            loss = loss_on(model, examples(step, 4, torch.float32))
            mixer.backward(scaler.scale(loss), row=row, value=loss)
        mixer.mix()
        if step == 1:
            model[0].weight.grad.fill_(math.inf)  # after the check: the scaler's to find
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(model[0].weight, before) == (step == 1)
    mixer.settle()
    assert scaler.get_scale() == 2.0


def test_a_mixer_that_knows_of_a_scaler_leaves_overflows_to_it():
    model = network(0, torch.float32)
    optimizer, scaler = EVERY["sgd"](model.parameters()), GradScaler("cpu", init_scale=4.0)
    mixer = engram.GradientMixer(optimizer, MEGA2(), scaler=scaler, check_finite=1)
    before = model[0].weight.clone()
    mixer.backward(loss_on(model, examples(0, 4, torch.float32)) * math.nan)
    mixer.mix()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model[0].weight, before)
    assert scaler.get_scale() == 2.0


def test_an_optimiser_without_hooks_is_waited_for():
    class Bare:
        """What holds param_groups as torch's optimisers do, and nothing else."""

        def __init__(self, held):
            self.param_groups = [{"params": [*held]}]

        def step(self):
            raise AssertionError

    loop = Loop(Bare)
    with pytest.raises(EngramError, match=r"^The row 'memory' has a loss of nan; the step is"):
        loop.step(0, bad_loss)


@pytest.mark.parametrize(
    "rule", [AGEM(), MEGA1(), MEGA2(), Equal()], ids=lambda r: type(r).__name__
)
def test_backward_waits_for_the_device(rule):
    model = network()
    for trouble in (bad_loss, bad_gradient):
        losses = [trouble(model, row) for row in ("current", "memory")]
        with pytest.raises(EngramError, match="is refused"):
            engram.backward(losses, model.parameters(), rule)
        assert all(parameter.grad is None for parameter in model.parameters())
    losses = [bad_loss(model, row) for row in ("current", "memory")]
    mix = engram.backward(losses, model.parameters(), rule, check_finite=False)
    assert mix.weights.isnan().all()


@pytest.mark.parametrize("name", ["fused sgd", "sgd"])
def test_a_copy_of_a_mixer_guards_its_own_optimiser(name):
    loop = Loop(EVERY[name], check_finite=2)
    loop.step(0)
    other = copy.deepcopy(loop)
    before = loop.weights()
    other.step(1, bad_loss)
    assert torch.equal(other.weights(), before)
    loop.step(1)
    assert not torch.equal(loop.weights(), before)
    with pytest.raises(EngramError, match="In step 1, "):
        other.step(2)
    assert isinstance(pickle.loads(pickle.dumps(loop.mixer)), engram.GradientMixer)


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("fused", [True, False])
def test_what_is_put_back_takes_no_more_memory_than_the_second_gradient(rule, fused, monkeypatch):
    monkeypatch.undo()
    unwaited(monkeypatch)
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(8)])
    size = sum(parameter.nbytes for parameter in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    mixer = engram.GradientMixer(optimizer, rule)
    inputs = torch.randn(2, 256)

    def step():
        for row in ROWS:
            mixer.backward(model(inputs).square().mean(), row=row)
        mixer.mix()
        optimizer.step()

    step()
    optimizer.zero_grad()
    assert 1.9 * size < peak_bytes(step) < (2 + 1 / 8 + 0.05) * size


@pytest.mark.parametrize("name", EVERY)
def test_a_void_step_is_one_whatever_the_default_precision_is(name):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # fused optimisers take a flag of float32 alone
    try:
        loop = Loop(EVERY[name])
        loop.step(0)
        weights = loop.weights()
        loop.step(1, bad_loss)
        assert torch.equal(loop.weights(), weights)
        with pytest.raises(EngramError, match="In step 2, "):
            loop.mixer.settle()
    finally:
        torch.set_default_dtype(before)
