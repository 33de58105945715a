"""What a learner may have beside a rule and a memory: a penalty, parts, clipping, scaling."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, ExponentialLR, OneCycleLR

from engram import Learner
from engram.errors import EngramError
from engram.memory import ClassSample, Memory, Reservoir
from engram.penalties import EWC, MAS, PI, RWALK
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

pytestmark = pytest.mark.numerical

RULES = [Current(), Equal(), AGEM(), MEGA1(), MEGA2(), GEM()]
PENALTIES = {
    "EWC": lambda: EWC(2.0, refresh_interval=2),
    "PI": lambda: PI(1.0),
    "MAS": lambda: MAS(1.0),
    "RWALK": lambda: RWALK(1.0, refresh_interval=2),
}


def name(value):
    return type(value).__name__


def network(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)


def batch(seed, count=6):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (count,), generator=generator)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_penalty_alone_is_that_of_a_loop_of_ones_own(penalty):
    model, other = network(), network()
    learner = Learner(model, sgd(model), penalty=PENALTIES[penalty]())
    optimizer, own = sgd(other), PENALTIES[penalty]()
    for task in range(3):
        seen = [batch(100 * task + step) for step in range(4)]
        for inputs, labels in seen:
            learner.observe(inputs, labels)
            optimizer.zero_grad()
            cross_entropy(other(inputs), labels).backward()
            own.step(optimizer)
            close(weights(model), weights(other))
        learner.end_task(seen)
        own.end_task(other, seen)
    close(learner.penalty.value(), own.value())


def test_beside_a_rule_the_penalty_pulls_on_the_mixture():
    model, other = network(), network()
    learner = Learner(
        model, sgd(model), MEGA2(), Memory(Reservoir(50)), penalty=EWC(2.0, refresh_interval=2)
    )
    for step in range(4):
        learner.observe(*batch(step))
    learner.end_task()
    other.load_state_dict(model.state_dict())
    plain = sgd(other)
    plain.load_state_dict(copy.deepcopy(learner.optimizer.state_dict()))
    twin = Learner(other, plain, MEGA2(), copy.deepcopy(learner.memory))
    learner.observe(*batch(7))
    twin.observe(*batch(7))
    close(weights(model), weights(other))  # where the weights are held, nothing pulls yet
    state = learner.penalty.state_dict()
    before = weights(model)
    learner.observe(*batch(8))
    twin.observe(*batch(8))
    anchors = torch.cat([each.flatten() for each in state["anchor"]])
    pulls = torch.cat([each.flatten() for each in state["penalty_weight"]])
    close(weights(model), weights(other) - 0.1 * pulls * (before - anchors))
    assert not torch.equal(weights(model), weights(other))


@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_parts_of_a_batch_make_the_step_of_the_whole(rule, size):
    whole, parts = (
        Learner(model, sgd(model), rule, Memory(ClassSample(4)), **options)
        for model, options in ((network(), {}), (network(), {"micro_batch": size}))
    )
    for task in range(3):
        for step in range(3):
            mine = parts.observe(*batch(10 * task + step), task=task)
            theirs = whole.observe(*batch(10 * task + step), task=task)
            close(mine.losses, theirs.losses)
            close(mine.weights, theirs.weights)
            close(weights(parts.model), weights(whole.model))
        whole.end_task()
        parts.end_task()


def test_parts_reach_a_loss_of_ones_own_with_their_tasks():
    seen = []

    def loss(model, examples, tasks):
        seen.append((len(examples["x"]), None if tasks is None else tasks.tolist()))
        return cross_entropy(model(examples["x"]), examples["y"]), torch.tensor(1.0).double()

    model = network()
    learner = Learner(model, sgd(model), MEGA2(), Memory(Reservoir(50)), loss=loss, micro_batch=4)
    inputs, labels = batch(0)
    learner.observe({"x": inputs, "y": labels}, task=3, labels=labels)
    mix = learner.observe({"x": inputs, "y": labels}, task=4, labels=labels)
    assert seen[2:] == [(4, [3] * 4), (2, [3] * 2), (4, [4] * 4), (2, [4] * 2)]
    close(mix.losses, torch.ones(2, dtype=mix.losses.dtype))


def test_the_step_is_cut_to_a_length_with_the_penalty_in_it():
    model = network()
    learner = Learner(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        penalty=EWC(1e3, refresh_interval=2),
        clip_norm=0.01,
    )
    for step in range(6):
        before = weights(model)
        learner.observe(*batch(step))
        assert (weights(model) - before).norm() <= 0.01 * (1 + 1e-9)
        if step == 3:
            learner.end_task()


@pytest.mark.parametrize("rule", [Equal(), MEGA2()], ids=name)
def test_a_scaled_step_is_the_plain_one_and_an_overflow_is_skipped(rule):
    plain, scaled = network(torch.float32), network(torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    one = Learner(plain, sgd(plain), rule, Memory(Reservoir(50)))
    two = Learner(scaled, sgd(scaled), rule, Memory(Reservoir(50)), scaler=scaler)
    for step in range(3):
        inputs, labels = batch(step)
        mine = two.observe(inputs.float(), labels)
        theirs = one.observe(inputs.float(), labels)
        torch.testing.assert_close(weights(scaled), weights(plain), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(mine.weights, theirs.weights, rtol=1e-5, atol=1e-6)
    held = weights(scaled)
    inputs, labels = batch(9)
    two.observe(inputs.float() * 1e30, labels)
    two.observe(inputs.float() * 1e38, labels)  # whatever overflows: no weight has become NaN
    assert weights(scaled).isfinite().all()
    assert held.isfinite().all()


def test_a_schedule_follows_every_step():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    learner = Learner(model, optimizer, scheduler=schedule)
    rates = []
    for step in range(4):
        learner.observe(*batch(step))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.01, 0.01, 0.001])


@pytest.mark.parametrize("penalty", PENALTIES)
def test_everything_goes_on_from_its_state_bit_for_bit(penalty):
    def build():
        model = network()
        optimizer = sgd(model)
        return Learner(
            model,
            optimizer,
            MEGA2(),
            Memory(Reservoir(20)),
            penalty=PENALTIES[penalty](),
            scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
            clip_norm=1.0,
        )

    def learn(learner, tasks):
        for task in tasks:
            seen = [batch(100 * task + step) for step in range(4)]
            for each in seen:
                learner.observe(*each, task=task)
            learner.end_task(seen)

    first = build()
    learn(first, [0, 1])
    saved = copy.deepcopy(first.state_dict())
    learn(first, [2])
    second = build()
    second.load_state_dict(saved)
    learn(second, [2])
    assert torch.equal(weights(first.model), weights(second.model))
    assert torch.equal(first.penalty.value(), second.penalty.value())

    third = build()
    learn(third, [5])
    before = copy.deepcopy(third.state_dict())
    with pytest.raises(EngramError):
        third.load_state_dict({**saved, "memory": {}})
    after = third.state_dict()
    assert after["scheduler"]["last_epoch"] == before["scheduler"]["last_epoch"]
    for name in ("anchor", "penalty_weight"):
        pairs = zip(after["penalty"][name], before["penalty"][name], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_without_a_memory_a_rule_that_mixes_is_refused_and_so_are_names():
    model = network()
    with pytest.raises(EngramError, match="there is no memory"):
        Learner(model, sgd(model), MEGA2())
    learner = Learner(model, sgd(model))
    assert "no memory" in repr(learner)
    inputs, labels = batch(0)
    with pytest.raises(EngramError, match="there is none"):
        learner.observe(inputs, labels, ids=range(6))
    with pytest.raises(EngramError, match="at least one example"):
        learner.observe(inputs[:0], labels[:0])
    with pytest.raises(EngramError, match="one row an example"):
        learner.observe(inputs, labels[:3])
    held = weights(model)
    with pytest.raises(EngramError, match="loss of nan"):
        learner.observe(inputs * torch.nan, labels)
    assert torch.equal(weights(model), held)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"micro_batch": 0}, "micro_batch"),
        ({"micro_batch": 2.0}, "micro_batch"),
        ({"clip_norm": 0}, "clip_norm"),
        ({"clip_norm": float("nan")}, "clip_norm"),
        ({"clip_norm": True}, "clip_norm"),
        ({"penalty": EWC}, "penalty must be one such as"),
    ],
)
def test_options_that_are_none_are_refused(options, said):
    model = network()
    with pytest.raises(EngramError, match=said):
        Learner(model, sgd(model), **options)


def test_a_penalty_too_strong_for_its_weights_takes_no_step_of_a_learner():
    model = nn.Sequential(network(), nn.BatchNorm1d(3).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    learner = Learner(model, optimizer, penalty=MAS(1e304))
    learner.observe(*batch(0))
    learner.end_task([batch(0)])
    with torch.no_grad():
        next(iter(model.parameters())).add_(1e7)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(EngramError, match="is not finite: the weights are too far"):
        learner.observe(*batch(1))
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name]), name


def chained(optimizer):
    parts = [ConstantLR(optimizer, 0.5, 3), ExponentialLR(optimizer, 0.9)]
    return ChainedScheduler(parts, optimizer)


def of_one_cycle(optimizer):
    return OneCycleLR(optimizer, 0.1, total_steps=100)


@pytest.mark.parametrize("schedule", [chained, of_one_cycle])
def test_a_refused_state_leaves_a_scheduler_and_what_it_is_made_of(schedule):
    def build(steps):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        learner = Learner(
            model, optimizer, memory=Memory(Reservoir(20)), scheduler=schedule(optimizer)
        )
        for step in range(steps):
            learner.observe(*batch(step))
        return learner

    saved, learner, twin = build(6).state_dict(), build(2), build(2)
    with pytest.raises(EngramError):
        learner.load_state_dict({**saved, "memory": {}})
    with pytest.raises(EngramError, match="not of this scheduler: it has no "):
        learner.load_state_dict({**saved, "scheduler": {}})
    for step in range(3):
        learner.observe(*batch(step))
        twin.observe(*batch(step))
    assert learner.optimizer.param_groups[0]["lr"] == twin.optimizer.param_groups[0]["lr"]
    assert torch.equal(weights(learner.model), weights(twin.model))
