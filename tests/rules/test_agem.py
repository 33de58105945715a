"""A-GEM against the projection of the vectors themselves."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_oracles import gram_of

from engram.rules import AGEM


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.floats(-1, 1), st.floats(1e-3, 1e3))
def test_it_is_the_projection_and_leaves_no_conflict(seed, pull, length):
    generator = torch.Generator().manual_seed(seed)
    g, r = torch.randn(2, 6, dtype=torch.float64, generator=generator)
    r = length * (r + 3 * pull * g)
    weights = AGEM()(torch.ones(2, dtype=torch.float64), gram_of(torch.stack([g, r])))
    update = weights @ torch.stack([g, r])
    expected = g - (g @ r) / (r @ r) * r if g @ r < 0 else g
    torch.testing.assert_close(update, expected, rtol=1e-9, atol=1e-12)
    assert update @ r >= -1e-9 * g.norm() * r.norm()


def test_orthogonal_and_aligned_gradients_are_left_alone():
    gram = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 1.0]]])
    assert torch.equal(AGEM()(torch.ones(2, 2), gram), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))


def test_opposite_gradients_leave_nothing():
    g = torch.tensor([3.0, 4.0])
    rows = torch.stack([g, -2 * g])
    weights = AGEM()(torch.ones(2), gram_of(rows))
    assert torch.equal(weights @ rows, torch.zeros(2))


def test_an_underflowed_reference_is_no_conflict():
    # |r| = 1e-30: its square is 0 in float32, its product with g is not.
    for square in (0.0, 1e-42):
        gram = torch.tensor([[1.0, -1e-30], [-1e-30, square]])
        assert torch.equal(AGEM()(torch.ones(2), gram), torch.tensor([1.0, 0.0]))
