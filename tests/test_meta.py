"""MER around a module of one's own."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import engram
from engram import Learner
from engram.errors import EngramError
from engram.memory import Fifo, IndexStorage, Memory, Reservoir
from engram.meta import MER
from engram.objectives import ERACE
from engram.rules import MEGA2
from unwaited import scattered, unwaited

pytestmark = pytest.mark.numerical


def batch(seed, count=3):
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=source, dtype=torch.float64)
    return inputs, torch.randint(3, (count,), generator=source)


def build(memory=None, loss=engram.learner.cross_entropy, model=None, **options):
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = Memory(Reservoir(4)) if memory is None else memory
    return Learner(model, optimizer, memory=memory, meta=MER(**{"draws": 2, **options}), loss=loss)


def test_without_draws_it_is_a_part_of_the_way_of_plain_sgd():
    learner, plain = build(draws=0, gamma=0.25), nn.Linear(4, 3).double()
    plain.load_state_dict(learner.model.state_dict())
    inputs, labels = batch(0)
    losses = []
    for x, y in zip(inputs, labels, strict=True):
        loss = cross_entropy(plain(x[None]), y[None])
        losses.append(loss.item())
        found = torch.autograd.grad(loss, list(plain.parameters()))
        with torch.no_grad():
            for each, gradient in zip(plain.parameters(), found, strict=True):
                each.sub_(0.25 * 0.1 * gradient)
    mix = learner.observe(inputs, labels)
    for mine, theirs in zip(learner.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert mix.losses.item() == pytest.approx(sum(losses) / 3)
    assert len(learner.memory) == 3


def test_what_is_known_of_each_example_reaches_the_memory():
    learner = build(Memory(Fifo(9)))
    learner.observe(*batch(0), task=4, ids=["a", "b", "c"], tags=[{"n": 0}, None, {"n": 2}])
    learner.observe(*batch(1), task=5, ids=torch.tensor([7, 8, 9]), tags={"all": 1})
    held = list(learner.memory.examples())
    assert [each.id for each in held] == ["a", "b", "c", 7, 8, 9]
    assert [each.task for each in held] == [4, 4, 4, 5, 5, 5]
    assert [each.tags for each in held] == [{"n": 0}, None, {"n": 2}, *[{"all": 1}] * 3]


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_it_goes_on_from_its_state_bit_for_bit(algorithm):
    learner, other = build(algorithm=algorithm), build(algorithm=algorithm)
    for step in range(3):
        learner.observe(*batch(step))
    other.load_state_dict(copy.deepcopy(learner.state_dict()))
    for each in (learner, other):
        each.observe(*batch(3))
    for mine, theirs in zip(learner.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_an_example_that_is_refused_leaves_what_was_before_it():
    learner = build(Memory(Reservoir(4), allow_nonfinite=True))
    learner.optimizer = torch.optim.Adam(learner.model.parameters())
    learner.observe(*batch(0))
    twin = copy.deepcopy(learner)
    inputs, labels = batch(1)
    inputs[1] = torch.nan
    said = (
        "nothing is changed. That was example 1 of the batch, counted from 0; those before it are "
    )
    with pytest.raises(EngramError, match=said + "learnt and remembered"):
        learner.observe(inputs, labels)
    twin.observe(inputs[:1], labels[:1])
    averages = [each.optimizer.state_dict()["state"] for each in (learner, twin)]
    torch.testing.assert_close(*averages, rtol=0, atol=0)
    for mine, theirs in zip(learner.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert list(learner.memory.examples()) == list(twin.memory.examples())


def test_a_batch_that_the_memory_cannot_take_is_not_learnt():
    learner = build()
    learner.observe(*batch(0))
    before = copy.deepcopy(learner.model.state_dict())
    inputs, labels = batch(1)
    inputs[2] = torch.inf
    with pytest.raises(EngramError, match="not finite"):
        learner.observe(inputs, labels)
    assert all(torch.equal(each, before[name]) for name, each in learner.model.state_dict().items())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory": None}, "draws from a memory"),
        ({"rule": MEGA2()}, "no rule that mixes"),
        ({"loss": ERACE()}, "no objective"),
        ({"memory": Memory(Reservoir(4), storage=IndexStorage(torch.zeros(3)))}, "one by one"),
        ({"meta": MER}, "meta must be one such as"),
    ],
)
def test_what_does_not_go_with_it_is_refused(options, said):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"memory": Memory(Reservoir(4)), "meta": MER(), **options}
    with pytest.raises(EngramError, match=said):
        Learner(model, optimizer, **given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gamma": 0}, "gamma must be a number above 0"),
        ({"beta": float("nan")}, "beta must be"),
        ({"draws": -1}, "draws must be a whole number"),
        ({"batches": 0}, "batches must be"),
        ({"algorithm": "six"}, "algorithm must be"),
    ],
)
def test_settings_that_are_none_are_refused(options, said):
    with pytest.raises(EngramError, match=said):
        MER(**options)


def test_weights_are_refused():
    with pytest.raises(EngramError, match="no weights"):
        build().observe(*batch(0), weights=[1, 2, 3])


@pytest.mark.parametrize("device", [unwaited, scattered], ids=lambda made: made.__name__)
@pytest.mark.parametrize("by", ["loss", "memory"])
@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_on_a_device_neither_weights_nor_memory_change_from_a_void_example_on(
    device, by, algorithm, monkeypatch
):
    """The device is a CPU that is not waited for."""
    device(monkeypatch)

    def loss(model, given, _):
        plain = cross_entropy(model(given[0].nan_to_num()), given[1])
        return plain + (given[0] * 0).sum() if by == "loss" else plain

    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(4, 3, dtype=torch.float64)
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, inputs):
            self.passes += 1
            return super().forward(inputs)

    options = {"algorithm": algorithm, "batches": 2, "loss": loss}
    first = Counting()
    models = first, copy.deepcopy(first)
    learner, twin = (build(Memory(Reservoir(9)), model=each, **options) for each in models)
    inputs, labels = batch(1, 5)
    for each in (learner, twin):
        each.observe(*batch(0))
    twin.observe(inputs[:2], labels[:2])
    inputs[2, 3] = torch.nan
    learner.observe(inputs, labels)
    learner.observe(*batch(2))
    with pytest.raises(EngramError, match="the row 'current' has a loss of nan"):
        learner.settle()
    mine, theirs = learner.model.state_dict(), twin.model.state_dict()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=0)
    assert [*learner.memory.examples()] == [*twin.memory.examples()]
    mine, theirs = learner.memory.sample(9).batch, twin.memory.sample(9).batch
    assert all(map(torch.equal, mine, theirs))
