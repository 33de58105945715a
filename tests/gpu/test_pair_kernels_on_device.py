"""On a GPU: two rows are read once by kernels of their own, as they are elsewhere by torch's."""

import importlib.util

import pytest
import torch

from engram.kernels import triton_works
from engram.lab.engine import gram
from engram.lab.engine import rows as engine_rows

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
]

LENGTHS = [1, 1000, 4097, 269_322, 269_344]


def rows_of(runs, length, beside=0):
    source = torch.Generator("cuda").manual_seed(0)
    whole = torch.randn(runs, 2, length + beside, device="cuda", generator=source)
    return whole[..., :length]


def test_triton_works_here():
    assert triton_works(torch.ones(1, device="cuda"))


@pytest.mark.parametrize("runs", [1, 5, 64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("beside", [0, 22])
def test_dot_products(runs, length, beside):
    rows = rows_of(runs, length, beside)
    exact = (rows.double().unsqueeze(1) * rows.double().unsqueeze(2)).sum(-1)
    matrix = gram(rows)
    torch.testing.assert_close(matrix.double(), exact, rtol=1e-5, atol=1e-5 * length**0.5)
    assert all(torch.equal(gram(rows), matrix) for _ in range(5))


@pytest.mark.parametrize("runs", [1, 5, 64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("beside", [0, 22])
def test_a_step_along_the_mixture(runs, length, beside):
    rows, weights = rows_of(runs, length, beside), torch.rand(runs, 2, device="cuda")
    held = torch.randn(runs, length + beside, device="cuda")
    before, parameters = held.clone(), held[:, :length]
    mixture = (weights.double().unsqueeze(-1) * rows.double()).sum(1)
    engine_rows.descend_along(parameters, rows, weights, 0.1)
    exact = before[:, :length].double() - 0.1 * mixture
    torch.testing.assert_close(parameters.double(), exact, rtol=1e-6, atol=1e-6)
    assert torch.equal(held[:, length:], before[:, length:])


def test_without_triton_it_is_the_same(monkeypatch):
    rows, weights = rows_of(5, 10_001), torch.rand(5, 2, device="cuda")
    parameters = [torch.ones(5, 10_001, device="cuda") for _ in range(2)]
    matrix = gram(rows)
    engine_rows.descend_along(parameters[0], rows, weights, 0.1)
    monkeypatch.setattr(engine_rows, "triton_works", lambda _: False)
    torch.testing.assert_close(gram(rows), matrix, rtol=1e-5, atol=1e-2)
    engine_rows.descend_along(parameters[1], rows, weights, 0.1)
    torch.testing.assert_close(*parameters)
