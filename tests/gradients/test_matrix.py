"""Every way to a Gram matrix and a mixture leads to the products of the whole vectors."""

import pytest
import torch

from engram.gradients.gram import GradientRows

SHAPES = [(4, 3), (4,), (2, 2, 5), (), (0, 3)]
CPU = torch.device("cpu")


def rows(count, dtype=torch.float64, reached=True):
    """Return rows of gradients; each misses another parameter where not all are reached."""
    generator = torch.Generator().manual_seed(count)
    made = [
        [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]
        for _ in range(count)
    ]
    for place, row in enumerate(made):
        if not reached:
            row[place % 3] = None
    return made


def vectors(given):
    """Return the rows as whole vectors, [rows, elements]."""
    pairs = [zip(row, SHAPES, strict=True) for row in given]
    parts = [[torch.zeros(s) if part is None else part for part, s in row] for row in pairs]
    return torch.stack([torch.cat([part.double().flatten() for part in row]) for row in parts])


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "weights",
    [
        [1.0],
        [0.5],
        [1.0, 0.0],
        [1.0, -2.0],
        [0.5, 0.0],
        [0.5, -2.0],
        [0.0, 1.0],
        [0.5, 0.0, 2.0],
        [-0.5, 1.0, 0.0, 0.25, 2.0],
    ],
)
def test_gram_and_mixture_in_tensors_and_in_numbers(weights, dtype, reached):
    count, weights = len(weights), torch.tensor(weights, dtype=torch.float64)
    given = rows(count, dtype, reached)
    whole = vectors(given)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]

    def check(gram, mixture):
        mixed = vectors([mixture])[0]
        torch.testing.assert_close(gram, whole @ whole.T, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(mixed, weights @ whole, rtol=tolerance, atol=tolerance)

    matrix = GradientRows(given, CPU)
    assert matrix.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    check(matrix.gram().double(), matrix.mixture(weights))
    matrix = GradientRows(rows(count, dtype, reached), CPU)
    gram = torch.tensor(matrix.gram_in_numbers(), dtype=torch.float64)
    check(gram, matrix.mixture_in_numbers(weights.tolist(), torch.float64))


@pytest.mark.parametrize("weights", [[0.0, 1.0], [0.5, 2.0]])
@pytest.mark.parametrize("trouble", [torch.inf, torch.nan])
def test_trouble_in_the_current_row_is_in_the_mixture_too(weights, trouble):
    for in_numbers in (False, True):
        given = rows(2)
        given[0][0][1, 1] = trouble
        matrix = GradientRows(given, CPU)
        mixed = (
            matrix.mixture_in_numbers(weights, torch.float64)
            if in_numbers
            else matrix.mixture(torch.tensor(weights, dtype=torch.float64))
        )
        assert not mixed[0][1, 1].isfinite()
        assert mixed[1].isfinite().all()


def test_nothing_is_trained():
    matrix = GradientRows([[], []], CPU)
    assert matrix.gram().tolist() == matrix.gram_in_numbers() == [[0, 0], [0, 0]]
    assert list(matrix.mixture_in_numbers([1.0, 2.0], torch.float32)) == []


def test_a_parameter_without_elements_shares_no_memory():
    empty = [torch.empty(0), torch.empty(0)]
    assert GradientRows([[each] for each in empty], CPU).gram_in_numbers() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("trouble", [1e30, float("inf"), float("nan")])
def test_products_out_of_range_are_those_of_torch_and_warn_of_nothing(trouble, count):
    """The tests make a warning an error."""
    given = [[torch.full((3,), trouble)], *([torch.ones(3)] for _ in range(count - 1))]
    matrix = GradientRows(given, CPU)
    numbers = torch.tensor(matrix.gram_in_numbers())
    torch.testing.assert_close(numbers, matrix.gram(), equal_nan=True)
    assert not numbers[0, 0].isfinite()
