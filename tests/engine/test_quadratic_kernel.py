"""The kernel of GEM's quadratic programs, played through by Triton's interpreter."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from engram.rules import GEM, gem
from engram.rules.gem import DIAGONAL, minimise


@pytest.fixture(autouse=True)
def kernels(interpreted, monkeypatch):
    """Let the solver take its kernel."""
    module = interpreted("engram.kernels.rules")
    monkeypatch.setattr(gem, "triton_works", lambda *_: True)
    return module


def programs(count, size, *, seed=0, dimensions=80):
    """Matrices with the diagonal that is asked for, and slopes of both signs."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((count, size, dimensions))
    rows *= np.sqrt(DIAGONAL / (rows**2).sum(-1, keepdims=True))
    current = random.standard_normal((count, dimensions, 1))
    return rows, current, rows @ rows.transpose(0, 2, 1), (rows @ current)[..., 0]


@pytest.mark.parametrize("size", [1, 2, 3, 15, 16, 31, 32, 63])
def test_it_finds_what_least_squares_find(size):
    """½|Rᵀx + g|² is ½ xᵀ(RRᵀ)x + (Rg)ᵀx and a constant."""
    rows, current, matrix, linear = programs(3, size)
    found = minimise(torch.from_numpy(matrix), torch.from_numpy(linear)).numpy()
    for x, own_rows, own in zip(found, rows, current, strict=True):
        expected, _ = nnls(own_rows.T, -own[:, 0])
        np.testing.assert_allclose(x, expected, rtol=1e-7, atol=1e-9)


def test_problems_end_each_by_itself(kernels):
    _, _, matrix, linear = (torch.from_numpy(each) for each in programs(4, 6))
    linear[1] = linear[1].abs()  # nothing is wrong at 0
    linear[2] = -linear[2].abs()
    together = kernels.pivoted(matrix, linear, 12, 1e-11)
    alone = [kernels.pivoted(matrix[[k]], linear[[k]], 12, 1e-11)[0] for k in range(4)]
    assert torch.equal(together, torch.stack(alone))
    assert together[1].tolist() == [0.0] * 6


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_rounds_that_do_not_suffice_end(kernels, rounds):
    _, _, matrix, linear = (torch.from_numpy(each) for each in programs(2, 9))
    x = kernels.pivoted(matrix, linear, rounds, 1e-11)
    assert ((x >= 0) & x.isfinite()).all()


@pytest.mark.parametrize("rule", [GEM(), GEM(0.0, 1e-3), GEM(0.0, 0.0)], ids=repr)
def test_a_rule_weighs_as_it_does_without(rule, monkeypatch):
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 17, 100, dtype=torch.float64, generator=source)
    rows[:, 1:] -= 0.2 * rows[:, :1]
    gram = (rows @ rows.mT).float()
    gram[1] = torch.eye(17)
    gram[2, 3, 3] = torch.nan
    gram[3, 5] = gram[3, :, 5] = 0.0
    gram[4, 1:, 1:] = 1.0  # all of them parallel
    losses = torch.ones(6, 17)
    weights = rule(losses, gram)
    monkeypatch.setattr(gem, "triton_works", lambda *_: False)
    torch.testing.assert_close(weights, rule(losses, gram), equal_nan=True)


def test_more_entries_than_a_tile_holds_are_left_to_torch(kernels, monkeypatch):
    monkeypatch.setattr(kernels, "pivoted", lambda *_: pytest.fail("called"))
    _, _, matrix, linear = programs(1, 64)
    assert minimise(torch.from_numpy(matrix), torch.from_numpy(linear)).shape == (1, 64)
