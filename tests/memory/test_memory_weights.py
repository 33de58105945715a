"""Weights of examples: in a sample, in the loss, and in what is sampled; and strata."""

from __future__ import annotations

import copy
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from engram import Learner
from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, Memory, Reservoir
from engram.rules import AGEM, GEM, Equal


def numbered(count, **options):
    """A memory of the numbers from 0, which are their ids too."""
    memory = Memory(options.pop("policy", Fifo(count)), seed=options.pop("seed", 0))
    memory.add(torch.arange(count), **options)
    return memory


def test_a_sample_has_the_weights_of_its_examples():
    memory = numbered(4, weights=[1.5, 2, 0.25, 1])
    sample = memory.sample(4)
    assert dict(zip(sample.ids, sample.weights.tolist(), strict=True)) == {
        0: 1.5,
        1: 2.0,
        2: 0.25,
        3: 1.0,
    }
    assert [example.weight for example in memory.examples()] == [1.5, 2.0, 0.25, 1.0]
    assert numbered(4).sample(2).weights is None


def test_examples_that_were_given_none_weigh_1():
    memory = numbered(2, policy=Fifo(9))
    memory.add(torch.arange(2), weights=torch.tensor([3.0, 4.0]))
    memory.add(torch.arange(1))
    assert memory.read(range(5)).weights.tolist() == [1, 1, 3, 4, 1]


def test_weights_follow_their_examples_wherever_these_go():
    memory = Memory(ClassRing(3, include_current=True), max_examples=7, seed=1)
    generator = np.random.default_rng(0)
    for start in range(0, 60, 6):
        numbers = torch.arange(start, start + 6)
        labels = torch.from_numpy(generator.integers(0, 3, 6))
        memory.add((numbers, labels), tasks=start // 20, weights=numbers + 0.5, times=numbers)
        memory.erase(ids=[start + 1, start - 5])
        sample = memory.read(range(len(memory)))
        assert sample.weights.tolist() == [number + 0.5 for number in sample.ids]
        assert [example.time for example in memory.examples()] == sample.ids


def inclusion(weights, count):
    """The probability of each place, over all orders of successive draws."""
    chances = [0.0] * len(weights)
    for order in itertools.permutations(range(len(weights)), count):
        chance, left = 1.0, sum(weights)
        for place in order:
            chance *= weights[place] / left
            left -= weights[place]
        for place in order:
            chances[place] += chance
    return chances


@pytest.mark.parametrize("count", [1, 2, 3])
def test_weighted_sampling_draws_one_after_another_in_proportion(count):
    weights, draws = [1.0, 2.0, 4.0, 0.5], 20_000
    memory = numbered(4, weights=weights)
    drawn = Counter(id for _ in range(draws) for id in memory.sample(count, weighted=True).ids)
    for place, expected in enumerate(inclusion(weights, count)):
        deviation = (expected * (1 - expected) / draws) ** 0.5
        assert abs(drawn[place] / draws - expected) < 5 * deviation


def test_weighted_sampling_without_weights_is_uniform_and_all_is_all():
    memory = numbered(30)
    assert len(set(memory.sample(7, weighted=True).ids)) == 7
    assert memory.sample(99, weighted=True).ids == [*range(30)]
    assert memory.sample(0, weighted=True).ids == []


def test_weighted_sampling_is_the_same_for_a_seed_and_after_loading(tmp_path):
    one, other = (numbered(30, weights=np.arange(1.0, 31.0), seed=5) for _ in range(2))
    assert one.sample(5, weighted=True).ids == other.sample(5, weighted=True).ids
    one.save(tmp_path / "memory")
    loaded = Memory.load(tmp_path / "memory")
    for _ in range(3):
        again = loaded.sample(5, weighted=True)
        expected = one.sample(5, weighted=True)
        assert again.ids == expected.ids
        assert torch.equal(again.weights, expected.weights)


def spread_by_hand(count, sizes):
    """One to each in turn, while there is any: the sorted shares."""
    shares = [0] * len(sizes)
    for turn in itertools.cycle(range(len(sizes))):
        if sum(shares) == min(count, sum(sizes)):
            return shares
        shares[turn] += shares[turn] < sizes[turn]
    return shares


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 40))
@pytest.mark.parametrize("by", ["class", "task"])
def test_a_stratified_sample_has_equally_many_of_each(by, sizes, count):
    names = [name for name, size in enumerate(sizes) for _ in range(size)]
    memory = Memory(Reservoir(99))
    memory.add((torch.arange(len(names)), torch.tensor(names)), tasks=names)
    sample = memory.sample(count, stratify=by)
    assert len(set(sample.ids)) == len(sample.ids) == min(count, len(names))
    found = Counter((sample.labels if by == "class" else sample.tasks).tolist())
    expected = spread_by_hand(count, sizes)
    # Who gets what cannot be divided is random; how many get it is not.
    assert sorted(found[name] for name in range(len(sizes))) == sorted(expected)
    assert all(abs(found[name] - expected[name]) <= 1 for name in range(len(sizes)))


def test_a_stratified_sample_draws_evenly_within_a_class():
    labels = torch.tensor([0] * 2 + [1] * 8)
    memory = Memory(Reservoir(99), seed=3)
    memory.add((torch.arange(10), labels))
    drawn = Counter(id for _ in range(4000) for id in memory.sample(2, stratify="class").ids)
    assert all(abs(drawn[id] / 4000 - 1 / 2) < 0.04 for id in (0, 1))
    assert all(abs(drawn[id] / 4000 - 1 / 8) < 0.03 for id in range(2, 10))


def test_strata_and_weights_go_together():
    memory = Memory(Reservoir(99), seed=3)
    memory.add((torch.arange(6), torch.tensor([0, 0, 0, 1, 1, 1])), weights=[1, 1, 1e9] * 2)
    for _ in range(20):
        assert set(memory.sample(2, stratify="class", weighted=True).ids) == {2, 5}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stratify": "label"}, "no way to stratify 'label'"),
        ({"stratify": "class", "by_task": True}, "leave stratify out"),
        ({"weighted": 1}, "weighted is 1"),
        ({"stratify": "task"}, "have no tasks"),
        ({"stratify": "class"}, "have no labels"),
    ],
)
def test_ways_to_sample_that_there_are_not_are_refused(options, words):
    with pytest.raises(EngramError, match=words):
        numbered(4).sample(2, **options)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0], "1 entries for a batch of 2"),
        ([1.0, 0.0], "must be above 0"),
        ([1.0, -1.0], "must be above 0"),
        ([1.0, float("nan")], "finite"),
        (["1", 2], "finite numbers"),
        ([True, 2], "finite numbers"),
        (3, "give one number for each"),
        (torch.ones(2, 1), "one-dimensional"),
    ],
)
def test_weights_that_are_none_are_refused_and_change_nothing(weights, words):
    memory = numbered(2, policy=Fifo(9))
    with pytest.raises(EngramError, match=words):
        memory.add(torch.arange(2), weights=weights)
    assert len(memory) == 2
    assert memory.sample(2).weights is None


# What a learner does with them.


def parts(rule, memory, seed=0, **options):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return model, Learner(model, optimizer, rule, memory, **options)


INPUTS = torch.arange(12.0).double().view(4, 3).sin()
CLASSES = torch.tensor([0, 1, 1, 0])
WEIGHTS = [0.5, 2.0, 1.0, 3.0]


def weighted_gradient(model):
    model = copy.deepcopy(model)
    losses = cross_entropy(model(INPUTS), CLASSES, reduction="none")
    weights = torch.tensor(WEIGHTS).double()
    ((weights * losses).sum() / weights.sum()).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("rule", [Equal(), AGEM(), GEM()])
def test_the_default_loss_is_the_weighted_mean_for_the_batch_and_for_the_memory(rule):
    policy = ClassRing(9, include_current=True)
    model, learner = parts(rule, Memory(policy))
    learner.observe(INPUTS, CLASSES, task=0, weights=WEIGHTS)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    expected = weighted_gradient(model)
    learner.observe(INPUTS, CLASSES, task=1, weights=WEIGHTS, ids=[9, 8, 7, 6])
    # Both rows are the same gradient: an equal mixture is twice it, a projection leaves it.
    factor = 2.0 if isinstance(rule, Equal) else 1.0
    for old, new, gradient in zip(before, model.parameters(), expected, strict=True):
        assert torch.allclose(new, old - 0.5 * factor * gradient, rtol=1e-10, atol=1e-12)


def test_a_loss_of_ones_own_is_given_the_weights_by_name():
    seen = []

    def loss(model, batch, _, weights=None):
        seen.append(None if weights is None else weights.tolist())
        return model(batch[0]).square().mean()

    _, learner = parts(Equal(), Memory(Fifo(9)), loss=loss)
    learner.observe(INPUTS, CLASSES)
    learner.observe(INPUTS, CLASSES, weights=WEIGHTS)
    learner.observe(INPUTS, CLASSES)
    assert seen == [None, None, WEIGHTS, [1, 1, 1, 1, *WEIGHTS], None]


def test_a_loss_that_takes_no_weights_is_refused_before_the_step():
    model, learner = parts(
        Equal(), Memory(Fifo(9)), loss=lambda model, batch, _: model(batch[0]).sum()
    )
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(EngramError, match="the loss takes none"):
        learner.observe(INPUTS, CLASSES, weights=WEIGHTS)
    assert all(map(torch.equal, before, model.parameters()))
    assert len(learner.memory) == 0


def test_weights_may_choose_what_is_sampled_instead():
    counts = Counter()

    def loss(model, batch, _):
        if len(batch[0]) == 1:
            counts[batch[1].item()] += 1
        return model(batch[0]).square().mean()

    memory = Memory(Fifo(4))
    memory.add((INPUTS, torch.arange(4)), weights=[1e-9, 1.0, 1e-9, 1.0])
    _, learner = parts(Equal(), memory, loss=loss, weights="sampling", reference_batch=1)
    for _ in range(20):
        learner.observe(INPUTS, torch.arange(4), weights=[1e-9, 1.0, 1e-9, 1.0])
    assert set(counts) == {1, 3}
    assert sum(counts.values()) == 20


def test_another_use_of_weights_is_refused():
    with pytest.raises(EngramError, match="no use of weights 'both'"):
        parts(Equal(), Memory(Fifo(4)), weights="both")


def test_weighted_parts_of_a_batch_take_the_step_of_the_whole():
    after = []
    for size in (None, 3):
        model, learner = parts(Equal(), Memory(Fifo(9)), micro_batch=size)
        for _ in range(2):
            learner.observe(INPUTS, CLASSES, weights=WEIGHTS)
        after.append([parameter.detach() for parameter in model.parameters()])
    for whole, parted in zip(*after, strict=True):
        assert torch.allclose(whole, parted, rtol=1e-6, atol=1e-7)


def test_weights_need_no_memory():
    model, learner = parts(None, None)
    expected = weighted_gradient(model)
    learner.observe(INPUTS, CLASSES, weights=WEIGHTS)
    found = [parameter.grad for parameter in model.parameters()]
    assert all(torch.allclose(*pair, rtol=1e-6) for pair in zip(found, expected, strict=True))
    with pytest.raises(EngramError, match="there is none"):
        learner.observe(INPUTS, CLASSES, times=3)
