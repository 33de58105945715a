"""The kernels for two rows, played through by Triton's interpreter, which needs no GPU."""

import pytest
import torch

from engram.lab.engine import rows as engine_rows

LENGTHS = [1, 5, 1023, 1024, 1025, 4096, 4097, 9000]
shapes = pytest.mark.parametrize(("runs", "length"), [(1 + size % 3, size) for size in LENGTHS])


@pytest.fixture(scope="module")
def kernels(interpreted):
    return interpreted("engram.kernels.rows")


def rows_of(runs, length, *, beside=0, seed=0):
    """Rows [R, 2, d] in which others lie between the runs and behind each row."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(runs, 3, length + beside, generator=source)[:, :2, :length]


@shapes
@pytest.mark.parametrize("beside", [0, 7])
def test_dot_products(kernels, runs, length, beside):
    rows = rows_of(runs, length, beside=beside)
    exact = rows.double() @ rows.double().mT
    matrix = kernels.gram(rows)
    assert torch.equal(matrix, matrix.mT)
    torch.testing.assert_close(matrix.double(), exact, rtol=1e-5, atol=1e-5 * length**0.5)


@pytest.mark.parametrize("length", LENGTHS)
def test_dot_products_of_two_vectors_that_lie_apart(kernels, length):
    current, reference = (row.clone() for row in rows_of(1, length)[0])
    both = torch.stack([current, reference]).double()
    matrix = kernels.gram_apart(current, reference)
    torch.testing.assert_close(matrix.double(), both @ both.T, rtol=1e-5, atol=1e-5 * length**0.5)
    current[-1] = torch.nan
    assert kernels.gram_apart(current, reference).isfinite().tolist() == [
        [False] * 2,
        [False, True],
    ]


@shapes
@pytest.mark.parametrize("beside", [0, 7])
def test_a_step_along_the_mixture(kernels, runs, length, beside):
    rows, held = rows_of(runs, length, beside=beside), rows_of(runs, length + 9, seed=1)[:, 0]
    before, parameters = held.clone(), held[:, :length]
    weights = torch.rand(runs, 2)
    mixture = (weights.double().unsqueeze(1) @ rows.double()).squeeze(1)
    kernels.descend(parameters, rows, weights, 0.3)
    exact = before[:, :length].double() - 0.3 * mixture
    torch.testing.assert_close(parameters.double(), exact, rtol=1e-6, atol=1e-6)
    assert torch.equal(held[:, length:], before[:, length:])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_run_that_diverged_leaves_the_others_alone(kernels, bad):
    rows, parameters = rows_of(3, 2000), rows_of(3, 2000, seed=1)[:, 0].clone()
    rows[1, 0, 7] = bad
    matrix, weights = kernels.gram(rows), torch.ones(3, 2)
    assert not matrix[1, 0].isfinite().any()
    assert matrix[[0, 2]].isfinite().all()
    kernels.descend(parameters, rows, weights, 0.1)
    assert parameters.isfinite().sum(-1).tolist() == [2000, 1999, 2000]


@pytest.mark.usefixtures("kernels")
def test_however_rows_and_parameters_lie_in_memory(monkeypatch):
    monkeypatch.setattr(engine_rows, "triton_works", lambda _: True)
    rows, weights = rows_of(2, 100), torch.rand(2, 2)
    lie = torch.empty(100, 2, 2).permute(1, 2, 0).copy_(rows)
    expected = engine_rows.gram(rows)
    torch.testing.assert_close(engine_rows.gram(lie), expected, rtol=1e-5, atol=1e-4)
    ends = [torch.zeros(2, 100), torch.zeros(2, 100), torch.zeros(100, 2).T]
    for parameters, given in zip(ends, (rows, lie, rows), strict=True):
        engine_rows.descend_along(parameters, given, weights, 0.1)
        torch.testing.assert_close(parameters, ends[0])


def test_without_them_a_step_is_the_same():
    rows, parameters = rows_of(2, 100), torch.zeros(2, 100)
    weights = torch.tensor([[0.5, 2.0], [1.0, -1.0]])
    exact = rows.double() @ rows.double().mT
    torch.testing.assert_close(engine_rows.gram(rows).double(), exact, rtol=1e-4, atol=1e-4)
    engine_rows.descend_along(parameters, rows, weights, 0.1)
    mixture = (weights.unsqueeze(1) @ rows).squeeze(1)
    torch.testing.assert_close(parameters, -0.1 * mixture)
