"""The kernels for many rows, played through by Triton's interpreter, which needs no GPU."""

import pytest
import torch

from engram.lab.engine import rows as engine_rows

SHAPES = [(1, 3, 1), (2, 3, 31), (1, 16, 2048), (3, 17, 2049), (2, 18, 5000), (1, 70, 333)]
shapes = pytest.mark.parametrize(("runs", "count", "length"), SHAPES)


@pytest.fixture(scope="module")
def kernels(interpreted):
    return interpreted("engram.kernels.rows")


def rows_of(runs, count, length, *, beside=0, seed=0):
    """Rows [R, n, d] in which others lie between the runs and behind each row."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(runs, count + 1, length + beside, generator=source)[:, :count, :length]


@shapes
@pytest.mark.parametrize("beside", [0, 7])
def test_dot_products(kernels, runs, count, length, beside):
    rows = rows_of(runs, count, length, beside=beside)
    exact = rows.double() @ rows.double().mT
    matrix = kernels.gram(rows)
    assert matrix.shape == exact.shape
    torch.testing.assert_close(matrix.double(), exact, rtol=1e-5, atol=1e-5 * length**0.5)


@shapes
@pytest.mark.parametrize("beside", [0, 7])
def test_a_step_along_the_mixture(kernels, runs, count, length, beside):
    rows, held = rows_of(runs, count, length, beside=beside), rows_of(runs, 1, length + 9)[:, 0]
    before, parameters = held.clone(), held[:, :length]
    weights = torch.rand(runs, count)
    mixture = (weights.double().unsqueeze(1) @ rows.double()).squeeze(1)
    kernels.descend(parameters, rows, weights, 0.3)
    exact = before[:, :length].double() - 0.3 * mixture
    torch.testing.assert_close(parameters.double(), exact, rtol=1e-5, atol=1e-5)
    assert torch.equal(held[:, length:], before[:, length:])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_run_that_diverged_leaves_the_others_alone(kernels, bad):
    rows, parameters = rows_of(3, 5, 2000), rows_of(3, 1, 2000, seed=1)[:, 0].clone()
    rows[1, 3, 7] = bad
    matrix, weights = kernels.gram(rows), torch.ones(3, 5)
    assert not matrix[1, 3].isfinite().any()
    assert matrix[[0, 2]].isfinite().all()
    kernels.descend(parameters, rows, weights, 0.1)
    assert parameters.isfinite().sum(-1).tolist() == [2000, 1999, 2000]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("count", [1, 2, 3, 128, 129])
def test_however_many_there_are(count, monkeypatch):
    monkeypatch.setattr(engine_rows, "triton_works", lambda _: True)
    rows, parameters, weights = rows_of(2, count, 50), torch.zeros(2, 50), torch.rand(2, count)
    exact = rows.double() @ rows.double().mT
    torch.testing.assert_close(engine_rows.gram(rows).double(), exact, rtol=1e-5, atol=1e-4)
    engine_rows.descend_along(parameters, rows, weights, 0.1)
    mixture = (weights.unsqueeze(1) @ rows).squeeze(1)
    torch.testing.assert_close(parameters, -0.1 * mixture, rtol=1e-4, atol=1e-4)
