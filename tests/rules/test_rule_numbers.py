"""Plain numbers give the weights that tensors give: one formula, two paths."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

RULES = [
    Current(),
    Equal(),
    AGEM(),
    GEM(),
    MEGA1(),
    MEGA1(test="reference"),
    MEGA2(),
    MEGA2(balance=False),
    MEGA2(max_angle=math.pi / 2),
    MEGA2(least_area=1e-10),
]
DOUBLE = torch.finfo(torch.float64)
each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
losses_ = st.one_of(st.sampled_from([0.0, -0.5]), st.floats(1e-12, 1e6))
lengths = st.one_of(st.just(0.0), st.floats(1e-9, 1e9))


def both_ways(rule, losses, gram):
    given_ = gram if rule.needs_gram else None
    tensor = None if given_ is None else torch.tensor(given_, dtype=torch.float64)
    expected = rule(torch.tensor(losses, dtype=torch.float64), tensor).tolist()
    return rule.weigh_numbers(losses, given_, DOUBLE), expected


@each_rule
@settings(max_examples=60, deadline=None)
@given(losses_, losses_, lengths, lengths, st.floats(-1, 1))
def test_numbers_and_tensors_agree(rule, current, reference, length, other, cosine):
    product = cosine * length * other
    ours, expected = both_ways(
        rule, [current, reference], [[length**2, product], [product, other**2]]
    )
    assert ours == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


@each_rule
def test_one_row_has_weight_one(rule):
    ours, expected = both_ways(rule, [0.5], [[2.0]])
    assert ours == expected == [1.0]


@each_rule
def test_two_negative_losses_count_as_zero(rule):
    ours, expected = both_ways(rule, [-1.0, -2.0], [[1.0, 0.0], [0.0, 1.0]])
    zeros, as_tensors = both_ways(rule, [0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
    assert (ours, expected) == (zeros, as_tensors)
    assert ours == pytest.approx(expected, rel=1e-15)  # CPUs round the tensors' root differently


@each_rule
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_trouble_stays_visible(rule, bad):
    weights = rule.weigh_numbers([bad, 1.0], [[1.0, 0.0], [0.0, 1.0]], DOUBLE)
    assert all(map(math.isnan, weights))


def test_the_precision_of_the_dot_products_decides_what_is_resolved():
    nearly_opposite = [[1.0, -1 + 1e-6], [-1 + 1e-6, 1.0]]
    assert MEGA2().weigh_numbers([1.0, 1.0], nearly_opposite, torch.finfo(torch.float32)) == [1, 0]
    assert MEGA2().weigh_numbers([1.0, 1.0], nearly_opposite, DOUBLE) != [1, 0]
