"""MEGA-I in the paper's form and in the released code's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.rules import MEGA1

losses = st.floats(0.0, 100.0)


@settings(max_examples=100, deadline=None)
@given(losses, losses, st.sampled_from([0.0, 1e-5, 1e-3, 0.1]))
def test_the_papers_rule(current, reference, epsilon):
    weights = MEGA1(epsilon)(torch.tensor([current, reference], dtype=torch.float64)).tolist()
    if current > epsilon and current > 1e-300:
        assert weights == pytest.approx([1.0, reference / current])
    elif current <= epsilon:
        assert weights == [0.0, 1.0]


@settings(max_examples=100, deadline=None)
@given(losses.filter(lambda x: x > 1e-300), losses)
def test_the_released_rule_tests_the_other_loss(current, reference):
    rule = MEGA1(epsilon=50.0, test="reference")
    weights = rule(torch.tensor([current, reference], dtype=torch.float64)).tolist()
    expected = [1.0, reference / current] if reference > 1e-10 else [0.0, 1.0]
    assert weights == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loss_of_exactly_epsilon_is_small(dtype):
    epsilon = 2.0**-10
    above = torch.nextafter(torch.tensor(epsilon, dtype=dtype), torch.tensor(1.0, dtype=dtype))
    rows = torch.stack([torch.tensor([epsilon, 1.0], dtype=dtype), torch.stack([above, 1 / above])])
    weights = MEGA1(epsilon)(rows)
    assert weights[0].tolist() == [0.0, 1.0]
    assert weights[1, 0] == 1


@pytest.mark.parametrize("rule", [MEGA1(), MEGA1(0.0), MEGA1(test="reference")], ids=repr)
@pytest.mark.parametrize("reference", [0.0, 1.0])
def test_nothing_left_to_learn_gives_the_memory_alone(rule, reference):
    assert rule(torch.tensor([0.0, reference])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("rule", [MEGA1(0.0), MEGA1(test="reference")], ids=repr)
def test_a_ratio_that_overflows_gives_the_memory_alone(rule):
    assert rule(torch.tensor([1e-38, 1e10])).tolist() == [0.0, 1.0]


def test_a_perfect_memory_gives_the_current_gradient_alone():
    assert MEGA1()(torch.tensor([2.0, 0.0])).tolist() == [1.0, 0.0]
    assert MEGA1(test="reference")(torch.tensor([2.0, 0.0])).tolist() == [0.0, 1.0]
