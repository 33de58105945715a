"""Every way to a Gram matrix and a mixture leads to the products of the whole vectors."""

from types import ModuleType

import pytest
import torch
from torch import nn

import engram
from engram.rules import Rule
from unwaited import scattered, unwaited, with_kernels

SHAPES = [(4, 3), (4,), (2, 2, 5), (), (0, 3)]


class Given(Rule):
    """The rule whose weights are given."""

    reference = "per task"

    def __init__(self, weights, *, needs_gram=True):
        self.weights = weights
        self.needs_gram = needs_gram

    def weigh(self, losses, _):
        return torch.tensor(self.weights, dtype=losses.dtype)


class Kernels(ModuleType):
    """What `engram.kernels.rows` has, by torch: with an interpreter the kernels have tests too."""

    def gram(self, joined):
        assert joined.is_contiguous()
        return joined @ joined.mT

    def gram_apart(self, current, reference):
        assert current.is_contiguous()
        assert reference.is_contiguous()
        return Kernels.gram(self, torch.stack([current, reference]))


@pytest.fixture(params=["host", "device", "kernels", "addresses"])
def _place(request, monkeypatch):
    """Compute in plain numbers, as on a CPU, and in tensors that are not read back, as on a GPU."""
    if request.param == "host":
        return
    if request.param == "addresses":
        scattered(monkeypatch)
        return
    unwaited(monkeypatch)
    if request.param == "kernels":
        monkeypatch.setattr(
            "engram.gradients.gram.triton_works", lambda each: each.dtype is torch.float32
        )
        with_kernels(monkeypatch, Kernels("rows"))


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


def vector(gradient):
    """Return a gradient as one whole vector, zeros where a parameter is not reached."""
    pairs = zip(gradient, SHAPES, strict=True)
    parts = [torch.zeros(shape) if part is None else part for part, shape in pairs]
    return torch.cat([part.double().flatten() for part in parts])


def mixed(given, rule, shapes=SHAPES):
    """Mix losses that are linear, with these gradients; return the mix and what is in ``.grad``."""
    dtype = next(part.dtype for part in given[0] if part is not None)
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
    mixer = engram.GradientMixer(torch.optim.SGD(parameters, lr=0.1), rule, check_finite=0)
    for number, row in enumerate(given):
        terms = zip(row, parameters, strict=True)
        loss = sum((part * each).sum() for part, each in terms if part is not None)
        mixer.backward(loss, row=number or "current", value=1.0)
    return mixer.mix(), [parameter.grad for parameter in parameters]


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "weights",
    [
        [1.0],
        [1.0, 0.0],
        [1.0, -2.0],
        [0.5, 0.0],
        [0.5, -2.0],
        [0.0, 1.0],
        [0.5, 0.0, 2.0],
        [-0.5, 1.0, 0.0, 0.25, 2.0],
    ],
)
def test_gram_and_mixture_are_those_of_the_whole_vectors(weights, dtype, reached):
    given = rows(len(weights), dtype, reached)
    whole = torch.stack([vector(row) for row in given])
    mix, gradient = mixed(given, Given(weights))
    assert mix.gram.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(mix.gram.double(), whole @ whole.T, rtol=1e-5, atol=1e-5)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    expected = torch.tensor(weights, dtype=torch.float64) @ whole
    torch.testing.assert_close(vector(gradient), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("count", [2, 5])
def test_of_a_small_model_half_a_row_is_copied_at_a_time(monkeypatch, count):
    unwaited(monkeypatch)
    monkeypatch.setattr("engram.gradients.gram.triton_works", lambda _: True)
    copied, shapes = [], [(150, 100), (100,), (100, 50), (50,), (50, 10)]

    class Counting(Kernels):
        def gram(self, joined):
            copied.append(joined.shape[-1])
            return super().gram(joined)

    with_kernels(monkeypatch, Counting("rows"))
    monkeypatch.setattr("engram.gradients.gram._on_gpu", lambda _: True)
    given = [[torch.randn(shape) for shape in shapes] for _ in range(count)]
    mix, _ = mixed(given, Given([1.0] * count), shapes)
    flat = torch.stack([torch.cat([each.flatten() for each in row]) for row in given])
    torch.testing.assert_close(mix.gram, flat @ flat.T, rtol=1e-4, atol=1e-3)
    assert 0 < max(copied) <= flat.shape[1] / 2


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("weights", [[0.0, 1.0], [0.5, 2.0]])
@pytest.mark.parametrize("trouble", [torch.inf, torch.nan])
def test_trouble_in_the_current_row_is_in_the_mixture_too(weights, trouble):
    given = rows(2)
    given[0][0][1, 1] = trouble
    _, gradient = mixed(given, Given(weights, needs_gram=False))
    assert not gradient[0][1, 1].isfinite()
    assert gradient[1].isfinite().all()


@pytest.mark.usefixtures("_place")
def test_nothing_is_trained():
    frozen = torch.ones(3)
    mixer = engram.GradientMixer(torch.optim.SGD([frozen], lr=0.1), Given([1.0, 2.0]))
    for row in ("current", "memory"):
        mixer.backward(torch.ones(1, requires_grad=True).sum(), row=row)
    assert mixer.mix().gram.tolist() == [[0, 0], [0, 0]]
    assert frozen.grad is None


@pytest.mark.usefixtures("_place")
def test_a_parameter_without_elements_shares_no_memory():
    mix, _ = mixed([[torch.empty(0)], [torch.empty(0)]], Given([1.0, 2.0]), [(0,)])
    assert mix.gram.tolist() == [[0, 0], [0, 0]]


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("trouble", [1e30, torch.inf, torch.nan])
def test_products_out_of_range_stay_so_and_warn_of_nothing(trouble, count):
    """The tests make a warning an error."""
    given = [[torch.full((3,), trouble)], *([torch.ones(3)] for _ in range(count - 1))]
    mix, _ = mixed(given, Given([1.0] * count), [(3,)])
    whole = torch.stack([row[0] for row in given])
    products = (whole.unsqueeze(1) * whole).sum(-1)
    torch.testing.assert_close(mix.gram, products, equal_nan=True)
    assert not mix.gram[0, 0].isfinite()


@pytest.mark.usefixtures("_place")
def test_a_large_half_precision_gradient_is_widened_piece_by_piece():
    """A piece has 2**22 elements: what is at both sides of its end counts, and counts once."""
    piece = 2**22
    whole = torch.zeros(2, 2 * piece + 5, dtype=torch.bfloat16)
    places = torch.tensor([0, piece - 1, piece, 2 * piece - 1, 2 * piece, 2 * piece + 4])
    whole[:, places] = torch.tensor([[1.0, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]]).to(whole.dtype)
    mix, _ = mixed([[row] for row in whole], Given([1.0, 0.0]), [whole.shape[1:]])
    assert mix.gram.tolist() == [[91, 56], [56, 91]]


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("count", [2, 3])
def test_a_large_gradient_is_multiplied_piece_by_piece(count):
    """What is at both sides of any piece's end counts, and counts once."""
    length = 2**18 + 5
    whole = torch.zeros(count, length)
    ends = torch.arange(2**13, length, 2**13)
    places = torch.cat([ends - 1, ends, torch.tensor([0, length - 1])])
    whole[:, places] = torch.arange(1.0, 1 + count).unsqueeze(1)
    mix, _ = mixed([[row, row[:3]] for row in whole], Given([1.0] * count), [(length,), (3,)])
    flat = torch.cat([whole, whole[:, :3]], 1)
    assert mix.gram.tolist() == (flat @ flat.T).tolist()


LAYOUTS = [
    lambda each: each,
    lambda each: each.contiguous(memory_format=torch.channels_last),
    lambda each: each.permute(1, 0, 3, 2).contiguous().permute(1, 0, 3, 2),
    lambda each: torch.stack([each, each], -1)[..., 0],  # with holes between its elements
]


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("sizes", [(3, 4, 5, 2), (8, 16, 9, 7)], ids=["one bucket", "several"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_gradients_in_any_layout_are_multiplied_element_by_element(sizes, dtype):
    """The rows of a parameter may differ in theirs; what is mixed keeps that of the parameter."""
    torch.manual_seed(0)
    whole = torch.randn(2, 2 * len(LAYOUTS), *sizes, dtype=torch.float64).to(dtype)
    parameters = [nn.Parameter(layout(torch.zeros(sizes, dtype=dtype))) for layout in 2 * LAYOUTS]
    mixer = engram.GradientMixer(torch.optim.SGD(parameters, lr=0.1), Given([0.5, -2.0]))
    for row, name in zip(whole, ("current", "memory"), strict=True):
        layouts = LAYOUTS if name == "current" else LAYOUTS[::-1]
        pairs = zip(row, 2 * layouts, parameters, strict=True)
        loss = sum((layout(each) * own).double().sum() for each, layout, own in pairs)
        mixer.backward(loss, row=name, value=1.0)
    mix = mixer.mix()
    flat = whole.double().flatten(1)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(mix.gram.double(), flat @ flat.T, rtol=1e-4, atol=1e-4)
    mixed = torch.stack([each.grad for each in parameters]).double()
    expected = 0.5 * whole[0].double() - 2 * whole[1].double()
    torch.testing.assert_close(mixed, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_single_gradient_in_any_layout(layout):
    given = [layout(torch.randn(3, 4, 5, 2)) for _ in range(2)]
    parameter = nn.Parameter(layout(torch.zeros(3, 4, 5, 2)))
    mixer = engram.GradientMixer(torch.optim.SGD([parameter], lr=0.1), Given([0.5, -2.0]))
    for own, name in zip(given, ("current", "memory"), strict=True):
        mixer.backward((parameter * own).sum(), row=name, value=1.0)
    flat = torch.stack([own.flatten() for own in given]).double()
    torch.testing.assert_close(mixer.mix().gram.double(), flat @ flat.T, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("_place")
def test_parameters_of_several_precisions_and_one_that_is_used_twice():
    wide, narrow = nn.Linear(3, 3).double(), nn.Linear(3, 3).bfloat16()
    optimizer = torch.optim.SGD([*wide.parameters(), *narrow.parameters()], lr=0.1)
    inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).double()
    losses = {
        "current": lambda: wide(wide(inputs)).square().sum() + narrow.weight.double().sum(),
        "memory": lambda: wide(inputs).sum() + narrow(inputs.bfloat16()).double().square().sum(),
    }
    held = [each for group in optimizer.param_groups for each in group["params"]]
    rows = []
    for loss in losses.values():
        parts = torch.autograd.grad(loss(), held, allow_unused=True)
        pairs = zip(parts, held, strict=True)
        rows.append([torch.zeros_like(p) if part is None else part for part, p in pairs])
    mixer = engram.GradientMixer(optimizer, Given([0.5, -2.0]))
    for name, loss in losses.items():
        mixer.backward(loss(), row=name, value=1.0)
    mix = mixer.mix()
    flat = torch.stack([torch.cat([each.double().flatten() for each in row]) for row in rows])
    torch.testing.assert_close(mix.gram.double(), flat @ flat.T, rtol=1e-6, atol=1e-6)
    for own, first, second in zip(held, *rows, strict=True):
        expected = (0.5 * first.double() - 2 * second.double()).to(own.dtype)
        torch.testing.assert_close(own.grad, expected)


@pytest.mark.usefixtures("_place")
def test_a_gradient_that_is_marked_as_negated_counts_by_what_it_is():
    """Behind a conjugate autograd leaves a view whose memory has the other sign."""
    size, angle = nn.Parameter(torch.tensor([2.0])), nn.Parameter(torch.tensor([3.0]))
    mixer = engram.GradientMixer(torch.optim.SGD([size, angle], lr=0.1), Given([1.0, 2.0]))
    number = torch.complex(size, angle).conj() * torch.complex(torch.tensor(1.0), torch.tensor(5.0))
    mixer.backward(number.real.sum())  # size + 5 angle
    mixer.backward((size + 7 * angle).sum(), row="memory")
    assert mixer.mix().gram.tolist() == [[26.0, 36.0], [36.0, 50.0]]
    assert [size.grad.item(), angle.grad.item()] == [3.0, 19.0]
