"""On a GPU: many rows are read once by kernels of their own, as they are elsewhere by torch's."""

import pytest
import torch

from engram.kernels import triton_works
from engram.lab.engine import gram
from engram.lab.engine import rows as engine_rows

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(1, 3, 1000), (5, 17, 269_322), (2, 18, 4097), (1, 17, 1_109_240), (3, 70, 20_000)]
shapes = pytest.mark.parametrize(("runs", "count", "length"), SHAPES)


def rows_of(runs, count, length, beside=22):
    source = torch.Generator("cuda").manual_seed(0)
    whole = torch.randn(runs, count, length + beside, device="cuda", generator=source)
    return whole[..., :length]


@shapes
def test_dot_products(runs, count, length):
    rows = rows_of(runs, count, length)
    assert triton_works(rows)
    exact = torch.stack([each @ each.T for each in rows.double()])
    matrix = gram(rows)
    torch.testing.assert_close(matrix.double(), exact, rtol=1e-5, atol=1e-5 * length**0.5)
    assert all(torch.equal(gram(rows), matrix) for _ in range(5))


@shapes
def test_a_step_along_the_mixture(runs, count, length):
    rows, weights = rows_of(runs, count, length), torch.rand(runs, count, device="cuda")
    held = torch.randn(runs, length + 22, device="cuda")
    before, parameters = held.clone(), held[:, :length]
    mixture = (weights.double().unsqueeze(-1) * rows.double()).sum(1)
    engine_rows.descend_along(parameters, rows, weights, 0.1)
    exact = before[:, :length].double() - 0.1 * mixture
    torch.testing.assert_close(parameters.double(), exact, rtol=1e-5, atol=1e-5)
    assert torch.equal(held[:, length:], before[:, length:])
