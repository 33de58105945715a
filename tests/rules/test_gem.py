"""GEM against other solvers of its quadratic program, and against the program itself."""

import numpy as np
import pytest
import quadprog
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_oracles import gram_of
from scipy.optimize import nnls

from engram.rules import GEM, gem
from engram.rules.gem import minimise


def conflicting(count, *, dimensions=40, seed=0, spread=1.0, shared=1.0):
    """A current gradient and so many references, most of them against it, of unlike lengths."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((count + 1, dimensions))
    rows[1:] -= shared * rows[0] * random.uniform(-0.5, 1.5, (count, 1))
    return torch.from_numpy(rows * np.exp(spread * random.standard_normal((count + 1, 1))))


def program(gram, ridge):
    """The matrix and the linear term of the program, straight from its definition."""
    products = gram[1:, 1:].double().numpy()
    squares = np.diag(products)
    scale = squares[squares > 0].mean() if squares.any() else 0.0
    matrix = products + ridge * scale * np.eye(len(products))
    return matrix, gram[0, 1:].double().numpy()


def weigh(rule, gram):
    weights = rule(torch.ones(len(gram), dtype=gram.dtype), gram)
    assert weights[0] == 1
    return weights[1:].double().numpy()


def assert_optimal(v, gram, margin, ridge, tolerance):
    """The conditions of Karush, Kuhn and Tucker, each slope in units of its own row."""
    matrix, linear = program(gram, ridge)
    unit = np.sqrt(np.diag(matrix))
    unit = np.where(unit > 0, unit, 1)
    slope = (matrix @ v + linear) / unit
    size = max(abs(linear / unit).max(), (abs(matrix) @ abs(v) / unit).max())
    assert np.isfinite(v).all()
    assert (v >= margin).all()
    assert (slope >= -tolerance * size).all()
    # An entry above the margin, by a step that counts, has no slope left.
    assert (np.minimum((v - margin) * unit, slope) <= tolerance * size).all()


@pytest.mark.parametrize("count", [1, 2, 3, 16, 69])
@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 0.1])
def test_it_solves_the_program(count, margin, ridge):
    for seed in range(5):
        gram = gram_of(conflicting(count, seed=seed))
        if (gram[0, 1:] >= 0).all():
            continue
        v = weigh(GEM(margin, ridge), gram)
        assert_optimal(v, gram, margin, ridge, 1e-9)
        matrix, linear = program(gram, ridge)
        expected = quadprog.solve_qp(matrix, -linear, np.eye(count), np.full(count, margin))[0]
        np.testing.assert_allclose(v, expected, rtol=1e-6, atol=1e-7 * abs(expected).max())


@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("length", [1e-18, 1e-4, 1.0, 1e18])
def test_without_a_margin_no_conflict_is_left(count, ridge, length):
    for seed in range(5):
        rows = length * conflicting(count, seed=seed, spread=0.3)
        v = weigh(GEM(0.0, ridge), gram_of(rows))
        update = rows[0] + torch.from_numpy(v) @ rows[1:]
        allowed = ridge * (rows[1:] ** 2).sum(-1).mean() * torch.from_numpy(v)
        assert (rows[1:] @ update >= -allowed - 1e-9 * length**2).all()


@pytest.mark.parametrize("count", [1, 3, 16])
def test_without_margin_and_ridge_the_update_is_the_nearest_one(count):
    rows = conflicting(count, seed=count)
    v = weigh(GEM(0.0, 0.0), gram_of(rows))
    distance = nnls(rows[1:].T.numpy(), -rows[0].numpy())[1]  # min |g + Rᵀv|, the dual
    update = rows[0] + torch.from_numpy(v) @ rows[1:]
    assert update.norm().item() == pytest.approx(distance, rel=1e-8)


def test_with_one_reference_it_is_a_gem():
    gram = torch.tensor([[4.0, -1.5], [-1.5, 2.0]], dtype=torch.float64)
    assert weigh(GEM(0.0, 0.0), gram) == pytest.approx([0.75])


@pytest.mark.parametrize("rule", [GEM(), GEM(0.0, 0.0)], ids=repr)
def test_without_conflict_the_gradient_is_left_alone(rule):
    rows = torch.eye(4)
    rows[0] += 0.1 * rows[1]
    assert weigh(rule, gram_of(rows)).tolist() == [0.0, 0.0, 0.0]


def test_the_margin_pushes_every_reference_where_one_conflicts():
    gram = torch.eye(3)
    gram[0, 1] = gram[1, 0] = -0.1
    assert weigh(GEM(), gram) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimensions", [3, 12, 40])
def test_dependent_rows_without_a_ridge(margin, dtype, dimensions):
    for seed in range(5):
        rows = conflicting(8, seed=seed, dimensions=dimensions, spread=0.3).to(dtype)
        rows = torch.cat([rows, rows[3:6], 2 * rows[4:5], torch.zeros(1, dimensions, dtype=dtype)])
        gram = gram_of(rows)
        v = weigh(GEM(margin, 0.0), gram)
        assert_optimal(v, gram, margin, 0.0, 1e-9 if dtype == torch.float64 else 1e-3)
        update = rows[0].double() + torch.from_numpy(v) @ rows[1:].double()
        assert update.norm() < 100 * rows.double().norm()


@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-6, 1e-4])
@pytest.mark.parametrize("dimensions", [3, 10, 1000])
def test_nearly_dependent_rows_whose_gram_matrix_lost_its_convexity(noise, dimensions):
    """A float32 Gram matrix of near copies has eigenvalues < 0; the answer still is one."""
    for seed in range(20):
        rows = conflicting(8, seed=seed, dimensions=dimensions, spread=0.3)
        copies = rows[1:].repeat(3, 1)
        copies += noise * torch.from_numpy(
            np.random.default_rng(seed).standard_normal(copies.shape)
        )
        gram = gram_of(torch.cat([rows, copies]).float())
        v = weigh(GEM(0.0, 0.0), gram)
        assert_optimal(v, gram, 0.0, 0.0, 1e-4)


def solve(matrix, linear):
    """The solver's answer to one problem, given in numbers."""
    return minimise(torch.as_tensor(matrix)[None], torch.as_tensor(linear)[None])[0].numpy()


def test_exactly_singular_equations_have_a_solution():
    x = solve(np.ones((2, 2)), np.array([-1.0, -1.0]))
    assert x.sum() == pytest.approx(1.0)
    assert (x >= 0).all()


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_the_unit_of_many_gradients_does_not_matter(scale):
    rows = conflicting(16)
    gram = gram_of(rows / rows.norm(dim=-1).max())
    expected = weigh(GEM(), gram.float())
    assert weigh(GEM(), (gram * scale**2).float()) == pytest.approx(expected, rel=1e-4)


def test_references_of_very_unlike_lengths():
    rows = conflicting(4, seed=1, spread=0.0)
    v = weigh(GEM(0.0, 0.0), gram_of(rows))
    lengths = torch.tensor([1.0, 1e-8, 1e-3, 1e4, 1e9], dtype=torch.float64)
    scaled = weigh(GEM(0.0, 0.0), gram_of(rows * lengths[:, None]))
    assert scaled * lengths[1:].numpy() == pytest.approx(v, rel=1e-6)


def test_an_underflowed_reference_is_no_conflict():
    gram = torch.tensor([[1.0, -1e-30, 0.2], [-1e-30, 0.0, 0.0], [0.2, 0.0, 1.0]])
    assert weigh(GEM(), gram).tolist() == [0.0, 0.0]
    gram[0, 2] = gram[2, 0] = -0.2
    for ridge in (0.0, 1e-3):
        assert weigh(GEM(0.0, ridge), gram) == pytest.approx([0.0, 0.2], rel=2e-3)


@pytest.mark.parametrize("seed", [6, 170, 949, 991])
def test_where_freeing_the_most_wrong_entry_would_go_round_in_a_circle(seed):
    gram = gram_of(conflicting(8, seed=seed, dimensions=5, spread=0.3))
    assert_optimal(weigh(GEM(0.0, 0.0), gram), gram, 0.0, 0.0, 1e-9)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    count=st.integers(1, 20),
    dimensions=st.integers(1, 60),
    copies=st.integers(0, 6),
    noise=st.sampled_from([0.0, 1e-8, 1e-4, 1e-1]),
    zeros=st.integers(0, 2),
    shared=st.floats(0, 1),
    spread=st.floats(0, 3),
    length=st.sampled_from([1e-18, 1e-6, 1.0, 1e18]),
    margin=st.sampled_from([0.0, 0.5, 100.0]),
    ridge=st.sampled_from([0.0, 1e-3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_gradients_get_an_optimal_answer(
    count, dimensions, copies, noise, zeros, shared, spread, length, margin, ridge, seed
):
    """Few or many, dependent or not, nearly parallel, of unlike lengths, of any unit, or zero."""
    rows = conflicting(count, dimensions=dimensions, seed=seed, spread=spread, shared=shared)
    random = np.random.default_rng(seed)
    again = rows[random.integers(1, count + 1, copies)] * torch.from_numpy(
        1 + noise * random.standard_normal((copies, dimensions))
    )
    rows = length * torch.cat([rows, again, torch.zeros(zeros, dimensions)])
    gram = gram_of(rows)
    v = weigh(GEM(margin, ridge), gram)
    if (gram[0, 1:] >= 0).all():
        assert not v.any()
    else:
        assert_optimal(v, gram, margin, ridge, 1e-9)


def test_problems_beside_each_other_do_not_disturb_one_another():
    grams = torch.stack([gram_of(conflicting(8, seed=seed, dimensions=9)) for seed in range(12)])
    grams[3] = torch.eye(9)  # no conflict
    grams[5, 2] = grams[5, :, 2] = 0.0
    grams[7, 4, 4] = torch.nan
    together = GEM(0.0)(torch.ones(12, 9), grams)
    for weights, gram in zip(together, grams, strict=True):
        torch.testing.assert_close(weights, GEM(0.0)(torch.ones(9), gram), equal_nan=True)
    assert together.isnan().any(-1).nonzero().tolist() == [[7]]


def test_nothing_is_read_back_from_a_device():
    # A tensor without data cannot be read.
    weights = GEM()(torch.ones(6, 17, device="meta"), torch.ones(6, 17, 17, device="meta"))
    assert weights.shape == (6, 17)


def test_the_answer_of_a_device_takes_all_rounds_and_is_the_same(monkeypatch):
    """Only on a CPU the solver stops as soon as all problems are solved."""
    losses = torch.ones(20, 17)
    grams = torch.stack([gram_of(conflicting(16, seed=seed)) for seed in range(20)])
    expected = GEM(0.0)(losses, grams)
    monkeypatch.setattr(gem._Tableau, "is_solved", lambda _: False)
    torch.testing.assert_close(GEM(0.0)(losses, grams), expected, rtol=1e-6, atol=1e-9)


def test_the_solver_ends_on_any_symmetric_matrix():
    """Also where it is no Gram matrix at all, the answer is feasible, finite, no worse than 0."""
    random = np.random.default_rng(0)
    matrices, linear = random.standard_normal((60, 20, 20)), random.standard_normal((60, 20))
    matrices[:30] *= 1e-3
    matrices += matrices.swapaxes(1, 2)
    matrices[:, range(20), range(20)] = 1.0
    for matrix, slopes in zip(matrices, linear, strict=True):
        x = solve(matrix, slopes)
        assert np.isfinite(x).all()
        assert (x >= 0).all()
        assert x @ matrix @ x / 2 + slopes @ x <= 1e-9


@pytest.mark.parametrize("scale", [1e-2, 1.0, 10.0])
def test_a_ridge_that_is_not_relative_is_added_as_it_is(scale):
    rows = scale * torch.randn(5, 30, generator=torch.Generator().manual_seed(3)).double()
    rows[1:] -= 0.4 * rows[:1]
    gram = rows @ rows.T
    weights = GEM(margin=0.0, ridge=1e-3, relative=False)(torch.ones(5).double(), gram)
    matrix = gram[1:, 1:].numpy() + 1e-3 * np.eye(4)
    expected = quadprog.solve_qp(matrix, -gram[0, 1:].numpy(), np.eye(4), np.zeros(4))[0]
    assert weights[1:].numpy() == pytest.approx(expected, abs=1e-8)
