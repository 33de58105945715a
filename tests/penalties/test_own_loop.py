"""Penalties around a module and an optimiser of one's own, against a slow reading in float64."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import engram
from engram.errors import EngramError
from engram.memory import Memory, Reservoir
from engram.penalties import EWC, MAS, PI, RWALK
from engram.rules import MEGA2
from penalty_oracles import BATCH, INTERVAL, RATE, READINGS, SIZES
from unwaited import scattered, unwaited

pytestmark = pytest.mark.numerical

PENALTIES = {"ewc": EWC, "pi": PI, "mas": MAS, "rwalk": RWALK}
LENGTHS = (38, 25, 30)  # 13, 9 and 10 steps, with last batches of 2, 1 and 3


class Tiny(nn.Module):
    """The oracle's network, with a parameter for each matrix and each vector."""

    def __init__(self):
        super().__init__()
        source = torch.Generator().manual_seed(3)
        self.weights = nn.ParameterList(
            torch.randn(shape, generator=source, dtype=torch.float64)
            for width, outputs in itertools.pairwise(SIZES)
            for shape in ((width, outputs), (outputs,))
        )

    def forward(self, inputs):
        hidden = inputs
        for layer in range(len(SIZES) - 1):
            matrix, bias = self.weights[2 * layer], self.weights[2 * layer + 1]
            hidden = (hidden.relu() if layer else hidden) @ matrix + bias
        return hidden


def task(number, length):
    source = torch.Generator().manual_seed(10 + number)
    inputs = torch.randn(length, SIZES[0], generator=source, dtype=torch.float64)
    return inputs, torch.randint(SIZES[-1], (length,), generator=source)


def batches(number):
    inputs, labels = task(number, LENGTHS[number])
    return list(zip(inputs.split(BATCH), labels.split(BATCH), strict=True))


def flat(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def build(name, formula, strength, model=None):
    options = {"refresh_interval": INTERVAL} if name in ("ewc", "rwalk") else {}
    model = Tiny() if model is None else model
    penalty = PENALTIES[name](strength, formula=formula, **options)
    return model, torch.optim.SGD(model.parameters(), lr=RATE), penalty


def learn(model, optimizer, penalty, batch):
    optimizer.zero_grad()
    cross_entropy(model(batch[0]), batch[1]).backward()
    penalty.step(optimizer)


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_every_step_is_that_of_the_slow_reading(name, formula):
    reading, strength = READINGS[name, formula]
    model, optimizer, penalty = build(name, formula, strength)
    slow = reading(flat(model), strength, len(LENGTHS))
    for number, length in enumerate(LENGTHS):
        for step, batch in enumerate(batches(number)):
            learn(model, optimizer, penalty, batch)
            slow.learn(step, *batch)
            torch.testing.assert_close(flat(model), slow.w, rtol=1e-8, atol=1e-10)
        if number < len(LENGTHS) - 1:
            penalty.end_task(model, batches(number))
            slow.finish(*task(number, length))
            held = copy.deepcopy(model.state_dict())
            here, value = flat(model), penalty.value()
            with torch.no_grad():
                for each in model.parameters():
                    each.add_(0.1)
            there, farther = flat(model), penalty.value()
            model.load_state_dict(held)
            rises = [
                (omega * ((there - star) ** 2 - (here - star) ** 2)).sum()
                for omega, star in slow.penalties
            ]
            expected = strength * sum(rises)
            torch.testing.assert_close(farther - value, expected, rtol=1e-8, atol=1e-12)


def test_pi_goes_by_how_the_weights_really_moved_whatever_the_optimiser():
    torch.manual_seed(0)
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    penalty = PI(1.0)
    start, path = flat(model), torch.zeros_like(flat(model))
    for batch in batches(0):
        before = flat(model)
        learn(model, optimizer, penalty, batch)
        gradient = torch.cat([each.grad.flatten() for each in model.parameters()])
        path -= gradient * (flat(model) - before)
    penalty.end_task()
    omega = (path / (1e-3 + (flat(model) - start) ** 2)).clamp(min=0)
    held = flat(model)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each))
    expected = (omega * (flat(model) - held) ** 2).sum()
    torch.testing.assert_close(penalty.value(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "formula"), READINGS)
@pytest.mark.parametrize("at", [(0, 0), (1, 0), (1, 5)])
def test_a_penalty_goes_on_from_its_state_bit_for_bit(name, formula, at):
    def go_on(parts, start):
        for number in range(len(LENGTHS)):
            for step, batch in enumerate(batches(number)):
                if (number, step) >= start:
                    learn(*parts, batch)
            if number >= start[0] and number < 2:
                parts[2].end_task(parts[0], batches(number))

    strength = READINGS[name, formula][1]
    parts = build(name, formula, strength)
    saved = None
    for number in range(2):
        for step, batch in enumerate(batches(number)):
            if (number, step) == at:
                saved = copy.deepcopy((parts[0].state_dict(), parts[2].state_dict()))
            learn(*parts, batch)
        parts[2].end_task(parts[0], batches(number))
    for batch in batches(2):
        learn(*parts, batch)

    other = build(name, formula, strength)
    other[0].load_state_dict(saved[0])
    other[2].attach(other[1])
    other[2].load_state_dict(saved[1])
    go_on(other, at)
    assert torch.equal(flat(other[0]), flat(parts[0]))


def test_a_state_that_does_not_fit_changes_nothing():
    model, optimizer, penalty = build("rwalk", "tables", 0.5)
    for batch in batches(0):
        learn(model, optimizer, penalty, batch)
    penalty.end_task()
    before = copy.deepcopy(penalty.state_dict())
    broken = [
        {},
        {**before, "kind": "EWC"},
        {**before, "steps": -1},
        {**before, "anchor": before["anchor"][:-1]},
        {**before, "gathered": {**before["gathered"], "score": [torch.zeros(1)] * 4}},
        {**before, "penalty_weight": [each.float() for each in before["penalty_weight"]]},
    ]
    for state in broken:
        with pytest.raises(EngramError, match="state"):
            penalty.load_state_dict(state)
        after = penalty.state_dict()
        assert after["steps"] == before["steps"]
        pairs = zip(after["anchor"], before["anchor"], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_a_state_that_was_saved_with_a_dimension_for_runs_is_read_bit_for_bit(name, formula):
    strength = READINGS[name, formula][1]
    parts, other = build(name, formula, strength), build(name, formula, strength)
    for batch in batches(0):
        learn(*parts, batch)
    parts[2].end_task(parts[0], batches(0))
    learn(*parts, batches(1)[0])
    state = parts[2].state_dict()
    for held in (state, state["gathered"]):
        for fact, saved in held.items():
            if isinstance(saved, list):
                held[fact] = [each.unsqueeze(0) for each in saved]
    other[0].load_state_dict(parts[0].state_dict())
    other[2].attach(other[1])
    other[2].load_state_dict(state)
    for each in (parts, other):
        learn(*each, batches(1)[1])
        each[2].end_task(each[0], batches(1))
        learn(*each, batches(2)[0])
    assert torch.equal(flat(other[0]), flat(parts[0]))


def test_a_head_that_grows_keeps_the_importance_of_what_it_had():
    torch.manual_seed(0)
    body, head = nn.Linear(4, 3), nn.Linear(3, 2, bias=False)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    penalty = MAS(1.0)
    inputs, labels = torch.randn(8, 4), torch.randint(2, (8,))
    cross_entropy(head(body(inputs)), labels).backward()
    penalty.step(optimizer)
    penalty.end_task(nn.Sequential(body, head), [(inputs, labels)])
    grown = nn.Linear(3, 4, bias=False)
    with torch.no_grad():
        grown.weight[:2] = head.weight
    new = torch.optim.SGD([*body.parameters(), *grown.parameters()], lr=0.1)
    cross_entropy(grown(body(inputs)), labels).backward()
    with pytest.raises(EngramError, match=r"replace\(old, new\)"):
        penalty.before_step(new)
    penalty.replace(head.weight, grown.weight)
    assert penalty.value() == 0
    with torch.no_grad():
        grown.weight[2:] += 1  # nothing is known of these
    assert penalty.value() == 0
    with torch.no_grad():
        grown.weight[:2] += 1
    assert penalty.value() > 0
    penalty.step(new)


def test_parameters_that_come_later_are_held_from_the_next_task_on_and_frozen_ones_stay():
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    penalty = EWC(3.0, refresh_interval=2)
    inputs, labels = torch.randn(8, 4), torch.randint(2, (8,))
    for _ in range(4):
        optimizer.zero_grad()
        cross_entropy(first(inputs), labels).backward()
        penalty.step(optimizer)
    penalty.end_task()
    optimizer.add_param_group({"params": second.parameters()})
    first.bias.requires_grad_(False)
    held = first.bias.clone()
    for _ in range(4):
        optimizer.zero_grad()
        cross_entropy(second(first(inputs)), labels).backward()
        penalty.step(optimizer)
    assert torch.equal(first.bias, held)
    assert first.bias.grad is None
    penalty.end_task()
    with torch.no_grad():
        second.weight += 1
    assert penalty.value() > 0


def test_weights_in_half_precision_are_held_in_float32():
    torch.manual_seed(0)
    model = nn.Linear(4, 2).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = RWALK(1.0, refresh_interval=2)
    inputs, labels = torch.randn(8, 4).bfloat16(), torch.randint(2, (8,))
    for _ in range(2):
        for _ in range(5):
            optimizer.zero_grad()
            cross_entropy(model(inputs).float(), labels).backward()
            penalty.step(optimizer)
        penalty.end_task()
    state = penalty.state_dict()
    gathered = [*state["anchor"], *itertools.chain(*state["gathered"].values())]
    assert {each.dtype for each in gathered} == {torch.float32}


def test_a_gradient_that_half_precision_cannot_hold_is_refused():
    torch.manual_seed(0)
    model = nn.Linear(4, 2).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = MAS(1e4)
    penalty.attach(optimizer)
    example = torch.ones(1, 4).half(), torch.zeros(1, dtype=torch.long)
    penalty.end_task(model, [example])
    for each in model.parameters():
        each.data += 100
        each.grad = torch.zeros_like(each)
    with pytest.raises(EngramError, match="the weights are too far"):
        penalty.step(optimizer)


def test_a_step_that_the_gradient_scaler_skips_is_none_for_the_penalty():
    model, _, penalty = build("rwalk", "tables", 0.5)
    model = model.float()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    twin = copy.deepcopy(model)
    plain = torch.optim.SGD(twin.parameters(), lr=RATE)
    other = RWALK(0.5, refresh_interval=INTERVAL)
    for step, (inputs, labels) in enumerate(batches(0)):
        for _ in range(2 if step == 3 else 1):
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs.float()), labels)
            scaler.scale(loss).backward()
            if step == 3 and model.weights[0].grad.isfinite().all() and scaler.get_scale() == 4.0:
                model.weights[0].grad.fill_(torch.inf)
            penalty.step(optimizer, scaler=scaler)
            scaler.update()
        plain.zero_grad()
        cross_entropy(twin(inputs.float()), labels).backward()
        other.step(plain)
    assert scaler.get_scale() == 2.0
    gathered = other.state_dict()["gathered"]
    for name, mine in penalty.state_dict()["gathered"].items():
        for a, b in zip(mine, gathered[name], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=name)


def test_what_cannot_be_served_is_refused_by_name():
    model, optimizer, penalty = build("mas", "tables", 0.5)
    with pytest.raises(EngramError, match="before a step"):
        penalty.end_task(model, batches(0))
    batch = batches(0)[0]
    learn(model, optimizer, penalty, batch)
    with pytest.raises(EngramError, match="give end_task the model and the task's batches"):
        penalty.end_task()
    with pytest.raises(EngramError, match="hold no example"):
        penalty.end_task(model, [])
    with pytest.raises(EngramError, match="outputs="):
        penalty.end_task(model, [{"inputs": batch[0]}])
    with pytest.raises(EngramError, match="A batch of the task"):
        penalty.end_task(model, ["text"])
    assert model.training
    penalty.end_task(model, [{"x": batch[0]}], outputs=lambda network, given: network(given["x"]))
    model.weights[0].grad = torch.full_like(model.weights[0], torch.nan)
    held = flat(model)
    with pytest.raises(EngramError, match="not finite"):
        penalty.step(optimizer)
    assert torch.equal(flat(model), held)
    embedding = nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(EngramError, match="sparse=False"):
        EWC(1.0).step(torch.optim.SGD(embedding.parameters(), lr=0.1))
    for wrong in (-1, float("nan"), "1", True):
        with pytest.raises(EngramError, match="strength"):
            EWC(wrong)
    with pytest.raises(EngramError, match="formula must be one of"):
        PI(1.0, formula="table")
    with pytest.raises(EngramError, match="refresh_interval"):
        RWALK(1.0, refresh_interval=0)
    with pytest.raises(EngramError, match="damping"):
        PI(1.0, damping=0)
    once = model.parameters()
    assert len([*once]) == len(model.weights)
    with pytest.raises(EngramError, match="none are given"):
        EWC(1.0).before_step(once)


@pytest.mark.parametrize(("name", "formula"), [("mas", "tables"), ("ewc", "kirkpatrick")])
def test_a_tasks_batch_that_is_not_finite_is_refused_and_the_penalty_is_as_it_was(name, formula):
    model, optimizer, penalty = build(name, formula, 0.5)
    learn(model, optimizer, penalty, batches(0)[0])
    penalty.end_task(model, batches(0))
    learn(model, optimizer, penalty, batches(1)[0])
    before, (inputs, labels) = penalty.value(), batches(1)[0]
    with pytest.raises(EngramError, match="not finite, or too large to be squared; the penalty is"):
        penalty.end_task(model, [*batches(1), (inputs * torch.nan, labels)])
    assert torch.equal(penalty.value(), before)
    penalty.end_task(model, batches(1))
    assert math.isfinite(penalty.value())


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_a_penalty_whose_own_gradient_is_not_finite_takes_no_step(name, formula):
    model, optimizer, penalty = build(name, formula, 1e200, Tiny().float())
    for inputs, labels in batches(0):
        learn(model, optimizer, penalty, (inputs.float(), labels))
    given = [(inputs.float(), labels) for inputs, labels in batches(0)]
    with pytest.raises(EngramError, match=r"strength=1e\+200.* holds weights by numbers that are"):
        penalty.end_task(model, given)

    model, optimizer, penalty = build(name, formula, 1e30, Tiny().float())
    for batch in given:
        learn(model, optimizer, penalty, batch)
    penalty.end_task(model, given)
    for each in model.parameters():
        each.data += 1e30
        each.grad = torch.ones_like(each)
    held, before = flat(model), penalty.state_dict()
    with pytest.raises(EngramError, match="is not finite: the weights are too far"):
        penalty.step(optimizer)
    assert torch.equal(flat(model), held)
    assert all(each.grad is None for each in model.parameters())
    after = penalty.state_dict()
    assert after["steps"] == before["steps"]
    for fact, gathered in before["gathered"].items():
        assert all(map(torch.equal, gathered, after["gathered"][fact]))


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_the_gradient_of_the_loss_is_left_as_it_was(name, formula):
    model, optimizer, penalty = build(name, formula, READINGS[name, formula][1])
    for number in range(2):
        for batch in batches(number):
            optimizer.zero_grad()
            cross_entropy(model(batch[0]), batch[1]).backward()
            own = [each.grad for each in model.parameters()]
            before = [each.clone() for each in own]
            penalty.before_step(optimizer)
            assert all(map(torch.equal, own, before))
            for each in model.parameters():
                each.grad *= 0.5  # as clipping does, between the halves of a step
            optimizer.step()
            penalty.after_step()
        penalty.end_task(model, batches(number))


def test_gradients_that_are_one_number_in_all_places_are_measured():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 2.0))

        def forward(self, inputs):
            return inputs * self.weight.sum()

    model, penalty = Scale(), MAS(1.0)
    penalty.attach(torch.optim.SGD(model.parameters(), lr=0.1))
    penalty.end_task(model, [(torch.ones(2, 1), torch.zeros(2, dtype=torch.long))])
    with torch.no_grad():
        model.weight += 1
    assert penalty.value() == 36  # |d (6 x)²/dw| = 12 for each weight


def test_weights_that_lie_elsewhere_since_the_last_step_are_those_that_count():
    model, optimizer, penalty = build("pi", "tables", 0.5)
    for batch in batches(0):
        learn(model, optimizer, penalty, batch)
    penalty.end_task()
    assert penalty.value() == 0
    for each in model.parameters():
        each.data = each.data + 0.1  # as loading or moving a model may do
    assert penalty.value() > 0


def test_the_check_can_be_left_out():
    model, optimizer, penalty = build("mas", "tables", 0.5)
    learn(model, optimizer, penalty, batches(0)[0])
    model.weights[0].grad = torch.full_like(model.weights[0], torch.nan)
    penalty.step(optimizer, check_finite=False)
    assert model.weights[0].isnan().all()


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_a_step_that_is_not_valid_counts_as_one_without_a_gradient(name, formula):
    states = []
    for bad in (0.0, torch.nan):
        model, optimizer, penalty = build(name, formula, READINGS[name, formula][1])
        for batch in batches(0):
            learn(model, optimizer, penalty, batch)
        penalty.end_task(model, batches(0))
        for batch in batches(1)[:3]:
            learn(model, optimizer, penalty, batch)
        for each in model.parameters():
            each.grad = torch.full_like(each, bad)
        penalty.before_step(optimizer, valid=torch.tensor(bad == 0))
        penalty.after_step()  # the weights are where they were
        states.append(penalty.state_dict())
    for fact, gathered in states[0]["gathered"].items():
        assert all(map(torch.equal, gathered, states[1]["gathered"][fact]))


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_a_parameter_that_is_one_number_is_held_as_a_vector_of_one(name, formula):
    class Scaled(nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.body, self.scale = Tiny(), nn.Parameter(torch.ones(shape, dtype=torch.float64))

        def forward(self, inputs):
            return self.body(inputs) * self.scale

    found = []
    for shape in ((), (1,)):
        model, optimizer, penalty = build(name, formula, READINGS[name, formula][1], Scaled(shape))
        for number in range(2):
            for batch in batches(number):
                learn(model, optimizer, penalty, batch)
            penalty.end_task(model, batches(number))
        found.append(flat(model))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("device", [unwaited, scattered], ids=lambda made: made.__name__)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_on_a_device_a_penalty_that_is_too_large_makes_a_learners_step_void(
    name, formula, fused, device, monkeypatch
):
    """The device is a CPU that is not waited for."""
    device(monkeypatch)
    model, _, penalty = build(name, formula, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=fused)
    learner = engram.Learner(model, optimizer, MEGA2(), Memory(Reservoir(99)), penalty=penalty)
    for batch in batches(0):
        learner.observe(*batch)
    learner.end_task(batches(0))
    learner.observe(*batches(1)[0])
    state = learner.state_dict()
    large = copy.deepcopy(state["penalty"])
    large["penalty_weight"] = [torch.full_like(each, 1e308) for each in large["penalty_weight"]]
    large["anchor"] = [torch.full_like(each, 1e308) for each in large["anchor"]]
    penalty.load_state_dict(large)
    for batch in batches(1)[1:4]:
        learner.observe(*batch)
    with pytest.raises(EngramError, match="In step 15, the penalty's gradient is not finite"):
        learner.settle()
    after, steps = learner.state_dict(), large["steps"]
    assert str(after["model"]) == str(state["model"])
    assert str(after["memory"]) == str(state["memory"])
    for held in optimizer.state.values():
        assert held["momentum_buffer"].isfinite().all()
    for each in itertools.chain(*after["penalty"]["gathered"].values()):
        assert each.isfinite().all()
    assert after["penalty"]["steps"] == steps + 3  # which count as steps without a gradient
