"""MEGA-II against brute force, the paper's formulas and the authors' numerical solver."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_oracles import authors_angle, best_angle, gram_of, pair, paper_weights, rotated

from engram.rules import MEGA2

LOSSES = [(1.0, 1.0), (1.0, 0.1), (0.1, 1.0), (2.3, 2.0), (1e-3, 5.0), (5.0, 1e-3)]
ANGLES = [0.01, 0.5, 1.0, math.pi / 2, 2.0, 2.6, 3.0]

each_loss = pytest.mark.parametrize("losses", LOSSES, ids=str)
each_angle = pytest.mark.parametrize("between", ANGLES)


def update(rule, losses, rows):
    weights = rule(torch.tensor(losses, dtype=rows.dtype), gram_of(rows))
    return weights.double() @ rows.double()


@each_loss
@each_angle
def test_it_maximises_the_papers_objective(losses, between):
    rows = pair(math.pi - between, lengths=(2.0, 0.3))
    expected = rotated(rows, best_angle(losses, between))
    torch.testing.assert_close(update(MEGA2(), losses, rows), expected, rtol=0, atol=1e-6)


@each_loss
@each_angle
def test_it_is_the_papers_a_and_b(losses, between):
    rows = pair(math.pi - between, lengths=(2.0, 0.3))
    weights = MEGA2()(torch.tensor(losses, dtype=torch.float64), gram_of(rows))
    assert weights.tolist() == pytest.approx(paper_weights(losses, rows), rel=1e-9, abs=1e-10)


@each_loss
@each_angle
@pytest.mark.parametrize("largest", [0.0, 0.3, math.pi / 2, 2.5])
def test_a_clamped_angle_maximises_over_the_angles_allowed(losses, between, largest):
    rows = pair(math.pi - between, lengths=(2.0, 0.3))
    expected = rotated(rows, best_angle(losses, between, largest))
    rule = MEGA2(max_angle=largest)
    torch.testing.assert_close(update(rule, losses, rows), expected, rtol=0, atol=1e-6)


@each_loss
@pytest.mark.parametrize("degrees", [10, 45, 90, 100, 120])
def test_a_right_angle_at_most_is_the_released_code(losses, degrees):
    between = math.radians(degrees)
    rows = pair(math.pi - between, lengths=(2.0, 0.3))
    expected = rotated(rows, authors_angle(losses, between))
    rule = MEGA2(max_angle=math.pi / 2)
    torch.testing.assert_close(update(rule, losses, rows), expected, rtol=0, atol=2e-3 * 2.0)


@each_loss
@each_angle
def test_without_balance_it_is_the_bisector(losses, between):
    rows = pair(math.pi - between, lengths=(2.0, 0.3))
    expected = rotated(rows, between / 2)
    for rule in (MEGA2(balance=False), MEGA2(balance=False, max_angle=math.pi / 2)):
        torch.testing.assert_close(update(rule, losses, rows), expected, rtol=0, atol=1e-9)


@settings(max_examples=150, deadline=None)
@given(
    st.floats(0, 100),
    st.floats(0, 100),
    st.floats(0, math.pi),
    st.floats(0, math.pi),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_update_is_as_long_as_the_current_gradient(current, reference, opening, limit, dtype):
    rows = pair(opening, lengths=(0.7, 30.0), dimensions=8).to(dtype)
    length = rows[0].double().norm()
    for rule in (MEGA2(), MEGA2(balance=False), MEGA2(max_angle=limit)):
        change = update(rule, (current, reference), rows).norm() / length - 1
        assert abs(change) < (1e-3 if dtype == torch.float32 else 1e-6)


every_kind = pytest.mark.parametrize(
    "rule", [MEGA2(), MEGA2(max_angle=math.pi / 2), MEGA2(max_angle=3.1)], ids=repr
)


@every_kind
def test_a_perfect_memory_leaves_the_gradient_alone(rule):
    for opening in (0.0, 1.0, math.pi):
        rows = pair(opening)
        weights = rule(torch.tensor([0.4, 0.0], dtype=torch.float64), gram_of(rows))
        assert weights.tolist() == pytest.approx([1.0, 0.0])


def test_nothing_left_to_learn_follows_the_memory():
    rows = pair(2.0, lengths=(2.0, 0.5))
    weights = MEGA2()(torch.tensor([0.0, 0.4], dtype=torch.float64), gram_of(rows))
    assert weights.tolist() == pytest.approx([0.0, 4.0])
    opposite = torch.tensor([[4.0, -1.0], [-1.0, 0.25]])
    assert MEGA2()(torch.tensor([0.0, 0.4]), opposite).tolist() == [0.0, 4.0]


@every_kind
def test_parallel_gradients_need_no_rotation(rule):
    g = torch.tensor([3.0, 4.0], dtype=torch.float64)
    rows = torch.stack([g, 0.1 * g])
    torch.testing.assert_close(update(rule, (0.3, 2.0), rows), g)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [-1.0, -0.7, -1e6])
def test_opposite_gradients_and_equal_losses_leave_the_gradient_alone(rule, dtype, factor):
    g = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    rows = torch.stack([g, factor * g])
    weights = rule(torch.tensor([0.3, 0.3], dtype=dtype), gram_of(rows))
    assert weights.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opposite_gradients_and_a_larger_memory_loss(dtype):
    """The best angle is π; a smaller limit has no plane to turn in."""
    g = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    rows = torch.stack([g, -3 * g])
    losses = (0.3, 0.9)
    torch.testing.assert_close(update(MEGA2(), losses, rows), -g.double(), rtol=1e-5, atol=1e-5)
    for limit in (math.pi / 2, 3.1):
        assert torch.equal(update(MEGA2(max_angle=limit), losses, rows), g.double())


@every_kind
@pytest.mark.parametrize(
    ("losses", "lengths"),
    [
        ((0.0, 0.0), (1.0, 1.0)),
        ((1.0, 1.0), (0.0, 1.0)),
        ((1.0, 1.0), (1.0, 0.0)),
        ((0.0, 1.0), (1.0, 0.0)),
        ((0.0, 1.0), (0.0, 0.0)),
        ((1.0, 1.0), (1e18, 1e-30)),
    ],
    ids=str,
)
def test_where_no_direction_is_defined_the_update_is_the_gradient(rule, losses, lengths):
    rows = pair(1.0, lengths=lengths).float()
    assert rule(torch.tensor(losses), gram_of(rows)).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("lengths", [(1e-18, 1e18), (1e18, 1e-18), (1e-18, 1e-18), (1e18, 1e18)])
@pytest.mark.parametrize("losses", [(1e-18, 1e-18), (1e18, 2e18), (1e-18, 1e18)], ids=str)
def test_float32_survives_any_scale(lengths, losses):
    rows = pair(1.0, lengths=lengths)
    weights = MEGA2()(torch.tensor(losses), gram_of(rows).float())
    change = (weights.double() @ rows).norm() / rows[0].norm() - 1
    assert abs(change) < 1e-5
