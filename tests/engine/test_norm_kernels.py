"""The kernels of batch norm and ReLU, played through by Triton's interpreter."""

import pytest
import torch
from torch.nn import functional

from engram.lab.networks import ResNet, residual
from engram.lab.networks.residual import Averages, has_kernels, rectified_norm

SHAPES = [(1, 1, 1, 2), (2, 3, 4, 5), (3, 20, 9, 7), (2, 64, 12, 11), (1, 80, 3, 3), (9, 4, 32, 32)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture(autouse=True)
def kernels(interpreted, monkeypatch):
    monkeypatch.setattr(residual, "triton_works", lambda *_: True)
    return interpreted("engram.kernels.layers")


def drawn(shape, *, beside, dtype=torch.float32, seed=0):
    """Images that are not centred, weights and biases of both signs, and what is beside."""
    source = torch.Generator().manual_seed(seed)

    def images():
        values = torch.randn(shape, generator=source) * 2 + 3
        return values.to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()

    weight, bias = (torch.randn(shape[1], generator=source).requires_grad_() for _ in range(2))
    return images(), weight, bias, images() if beside else None


def plain(*given):
    """The same in float64, by torch."""
    return unrectified(*given).relu()


def unrectified(images, weight, bias, beside, averages, epsilon):
    """What the ReLU is given."""
    mean, variance = averages.mean, averages.variance
    normal = functional.batch_norm(
        *(images.double(), mean.double(), variance.double(), weight.double(), bias.double()),
        training=True,
        momentum=averages.momentum,
        eps=epsilon,
    )
    return normal if beside is None else normal + beside.double()


@shapes
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("readers", [(0,), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_comes_out_and_what_goes_back(shape, beside, readers, dtype):
    given = drawn(shape, beside=beside, dtype=dtype)
    averages = Averages(torch.zeros(shape[1]), torch.ones(shape[1]), 0.1)
    leaves = [each for each in given if each is not None]
    twice, before = rectified_norm(*given, averages, 1e-3), unrectified(*given, averages, 1e-3)
    ours, exact = twice[0], before.relu()
    assert ours.dtype == dtype
    assert torch.equal(*twice)
    tolerance = (
        {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 3e-2}
    )
    torch.testing.assert_close(ours.double(), exact, **tolerance)
    source = torch.Generator().manual_seed(9)
    certain = before.abs() >= 0.05  # where rounding does not decide
    back = [(torch.randn(shape, generator=source) * certain).to(dtype) for _ in readers]
    found = torch.autograd.grad([twice[reader] for reader in readers], leaves, back)
    expected = torch.autograd.grad(exact, leaves, sum(each.double() for each in back))
    for mine, right in zip(found, expected, strict=True):
        assert mine.dtype == right.dtype
        scale = right.abs().max().item() + 1
        torch.testing.assert_close(
            mine.double(), right.double(), rtol=0.0, atol=scale * tolerance["atol"]
        )


@shapes
def test_running_averages_move_as_batch_norm_moves_them(shape):
    images, weight, bias, _ = drawn(shape, beside=False)
    ours, right = ([torch.full(shape[1:2], 0.5), torch.full(shape[1:2], 2.0)] for _ in range(2))
    rectified_norm(images, weight, bias, None, Averages(*ours, 0.1), 1e-3)
    functional.batch_norm(images, *right, weight, bias, training=True, momentum=0.1, eps=1e-3)
    torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-5)


def test_numbers_far_from_zero_are_normalised_all_the_same():
    images = torch.randn(4, 16, 8, 8, generator=torch.Generator().manual_seed(0)) + 1000
    images[0, :8, 0, 0] += 20  # the first pixel, which the others are compared with
    images = images.contiguous(memory_format=torch.channels_last)
    averages = Averages(torch.zeros(16), torch.ones(16), 0.1)
    given = images, torch.ones(16), torch.zeros(16), None
    exact = plain(*given, averages, 1e-3)
    torch.testing.assert_close(
        rectified_norm(*given, averages, 1e-3)[0].double(), exact, rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("programs", [1, 3])
def test_many_tiles_are_summed(programs, interpreted, monkeypatch):
    monkeypatch.setattr(interpreted("engram.kernels.layers"), "_PROGRAMS", programs)
    images, weight, bias, _ = drawn((5, 20, 12, 11), beside=False)
    averages = Averages(torch.zeros(20), torch.ones(20), 0.1)
    exact = plain(images, weight, bias, None, averages, 1e-3)
    ours, _ = rectified_norm(images, weight, bias, None, averages, 1e-3)
    torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-4)
    leaves, back = [images, weight, bias], torch.randn(ours.shape)
    found = torch.autograd.grad(ours, leaves, back)
    expected = torch.autograd.grad(exact, leaves, back.double())
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_gradients_that_lie_otherwise_are_gradients_all_the_same():
    images, weight, bias, _ = drawn((2, 3, 4, 5), beside=False)
    averages = Averages(torch.zeros(3), torch.ones(3), 0.1)
    output, _ = rectified_norm(images, weight.detach(), bias, None, averages, 1e-3)
    back = torch.randn(2, 3, 4, 5)
    apart, together = (
        torch.autograd.grad(output, [images, bias], given, retain_graph=True)
        for given in (back, back.contiguous(memory_format=torch.channels_last))
    )
    for one, other in zip(apart, together, strict=True):
        assert torch.equal(one, other)


def test_what_was_added_and_is_not_asked_for_counts_all_the_same():
    images, weight, bias, beside = drawn((2, 3, 4, 5), beside=True)
    averages, back = Averages(torch.zeros(3), torch.ones(3), 0.1), torch.randn(2, 3, 4, 5)
    asked, silent = (
        torch.autograd.grad(
            rectified_norm(images, weight, bias, each, averages, 1e-3)[1], [images, bias], back
        )
        for each in (beside, beside.detach())
    )
    for one, other in zip(asked, silent, strict=True):
        assert torch.equal(one, other)


class Silent(torch.autograd.Function):
    """Has no gradient for what it is given."""

    @staticmethod
    def forward(ctx, given):  # noqa: ARG004
        return given.clone()

    @staticmethod
    def backward(ctx, gradient):  # noqa: ARG004
        return None


def test_where_no_gradient_comes_back_none_goes_further():
    images, weight, bias, _ = drawn((2, 3, 4, 5), beside=False)
    averages = Averages(torch.zeros(3), torch.ones(3), 0.1)
    output, _ = rectified_norm(images, weight, bias, None, averages, 1e-3)
    Silent.apply(output).sum().backward()
    assert images.grad is None


def test_a_second_derivative_is_refused():
    images, weight, bias, _ = drawn((2, 3, 4, 5), beside=False)
    averages = Averages(torch.zeros(3), torch.ones(3), 0.1)
    output, _ = rectified_norm(images, weight, bias, None, averages, 1e-3)
    (gradient,) = torch.autograd.grad(output.square().sum(), [images], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (gradient.sum() + images.sum()).backward()


def test_what_is_no_number_stays_so():
    images, weight, bias, _ = drawn((2, 3, 4, 4), beside=False)
    with torch.no_grad():
        images[0, 1, 2, 2] = torch.nan
    averages = Averages(torch.zeros(3), torch.ones(3), 0.1)
    output, _ = rectified_norm(images, weight, bias, None, averages, 1e-3)
    assert output[:, 1].isnan().all()
    assert output[:, [0, 2]].isfinite().all()


def test_images_that_lie_otherwise_or_are_narrow_are_left_to_torch():
    images = torch.ones(2, 64, 4, 4)
    together = images.contiguous(memory_format=torch.channels_last)
    assert has_kernels(together)
    assert not has_kernels(images)
    assert not has_kernels(together[:, :63].contiguous(memory_format=torch.channels_last))
    assert not has_kernels(together[:1, :, :1, :1])  # single values, which batch norm refuses


def lying_otherwise(images, *others):
    """Convolutions of a CPU give what they are given: channels apart."""
    together = images.contiguous(memory_format=torch.channels_last)
    return tuple(each.contiguous() for each in rectified_norm(together, *others))


def test_a_network_learns_the_same(monkeypatch):
    network, ends = ResNet(2, 4), []
    source = torch.Generator().manual_seed(0)
    images = torch.rand(2, 6, 3, 8, 8, generator=source)
    parameters = 0.1 * torch.randn(2, network.size, generator=source)
    monkeypatch.setattr(residual, "rectified_norm", lying_otherwise)
    for kernels in (False, True):
        monkeypatch.setattr(residual, "has_kernels", lambda _, kernels=kernels: kernels)
        buffers, rows = network.initial_buffers(parameters), torch.empty(2, 1, network.size)
        logits, tape = network.forward(parameters, images, buffers)
        network.backward(parameters, tape, torch.ones_like(logits) / 3, rows)
        ends.append([logits, rows, buffers])
    for right, ours in zip(*ends, strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-3, atol=1e-4)
