"""The kernels of a layer, played through by Triton's interpreter on a CPU."""

import pytest
import torch

SHAPES = [(3, 20, 17), (10, 33, 40), (70, 64, 10), (1, 5, 2), (64, 32, 64)]  # B, inputs, outputs


@pytest.fixture(scope="module")
def layers(interpreted):
    return interpreted("engram.kernels.layers")


@pytest.mark.parametrize(("size", "inputs", "outputs"), SHAPES)
def test_a_layer_and_its_gradients(layers, size, inputs, outputs):
    hidden, gradient = torch.randn(2, size, inputs).relu(), torch.randn(2, size, outputs)
    weight, bias = torch.randn(2, inputs, outputs), torch.randn(2, 1, outputs)
    exact = torch.baddbmm(bias.double(), hidden.double(), weight.double())
    for rectify, expected in ((False, exact), (True, exact.relu())):
        ours = layers.layer(hidden, weight, bias, rectify=rectify, tf32=False)
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-4)
    ours = layers.grad_input(gradient, weight, hidden, tf32=False)
    expected = (gradient.double() @ weight.double().mT) * (hidden > 0)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-4)
    flat = torch.zeros(2, inputs * outputs + outputs + 7)  # others lie behind them
    at_weight = flat[:, : inputs * outputs].view(2, inputs, outputs)
    at_bias = flat[:, inputs * outputs : -7].view(2, 1, outputs)
    layers.grad_weight(hidden, gradient, at_weight.unsqueeze(1), at_bias.unsqueeze(1))
    torch.testing.assert_close(
        at_weight.double(), hidden.double().mT @ gradient.double(), rtol=1e-5, atol=1e-4
    )
    torch.testing.assert_close(
        at_bias.double(), gradient.double().sum(1, keepdim=True), rtol=1e-5, atol=1e-4
    )
    assert not flat[:, -7:].any()


def test_the_gradients_of_groups_lie_between_what_is_not_theirs(layers):
    runs, groups, size, inputs, outputs = 2, 3, 10, 33, 17
    hidden, gradient = torch.randn(6, size, inputs), torch.randn(6, size, outputs)
    held = torch.zeros(runs, 1 + groups, inputs * outputs + outputs + 7)
    rows = held[:, 1:, :-7]  # a run's first row is another's
    at_weight = rows[..., :-outputs].view(runs, groups, inputs, outputs)
    at_bias = rows[..., -outputs:].view(runs, groups, 1, outputs)
    layers.grad_weight(hidden, gradient, at_weight, at_bias)
    expected = (hidden.double().mT @ gradient.double()).view(at_weight.shape)
    torch.testing.assert_close(at_weight.double(), expected, rtol=1e-5, atol=1e-4)
    expected = gradient.double().sum(1).view(at_bias.shape)
    torch.testing.assert_close(at_bias.double(), expected, rtol=1e-5, atol=1e-4)
    assert not held[:, 0].any()
    assert not held[..., -7:].any()


def test_it_does_not_matter_how_they_lie_in_memory(layers):
    """Not even which of their dimensions is the dense one."""

    def lying(*shape):
        return torch.randn(3, *reversed(shape)).transpose(1, 2)

    hidden, gradient, weight, bias = (
        lying(20, 33).relu(),
        lying(20, 17),
        lying(33, 17),
        lying(1, 17),
    )
    results, lie = [], (hidden, gradient, weight, bias)
    for hidden, gradient, weight, bias in (lie, [tensor.contiguous() for tensor in lie]):
        learned = [torch.zeros_like(weight), torch.zeros_like(bias)]
        layers.grad_weight(hidden, gradient, *(each.unsqueeze(1) for each in learned))
        outputs = [layers.layer(hidden, weight, bias, rectify=way, tf32=False) for way in (0, 1)]
        results.append(
            [*outputs, layers.grad_input(gradient, weight, hidden, tf32=False), *learned]
        )
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_rows_may_lie_farther_apart_than_32_bits_can_count(layers, tmp_path):
    apart = 2**30  # in a file of holes; where miscounted rows would be, there are zeros
    held = torch.from_file(str(tmp_path / "holes"), shared=True, size=4 * apart + 5)
    hidden = held.as_strided((1, 3, 5), (0, apart, 1), 2 * apart).copy_(torch.rand(1, 3, 5))
    weight, bias, gradient = torch.randn(1, 5, 4), torch.randn(1, 1, 4), torch.randn(1, 3, 4)
    ours = layers.layer(hidden, weight, bias, rectify=False, tf32=False)
    torch.testing.assert_close(ours, torch.baddbmm(bias, hidden, weight), rtol=1e-5, atol=1e-5)
    ours = layers.grad_input(gradient, weight, hidden, tf32=False)
    torch.testing.assert_close(ours, (gradient @ weight.mT) * (hidden > 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_trouble_stays_visible_and_at_home(layers, bad):
    hidden, gradient = torch.rand(3, 40, 20) + 0.1, torch.randn(3, 40, 17)
    weight, bias = torch.randn(3, 20, 17), torch.randn(3, 1, 17)
    weight[1, 5, 7] = bad
    results = [
        layers.layer(hidden, weight, bias, rectify=False, tf32=False),
        layers.layer(hidden, weight, bias, rectify=True, tf32=False),
        layers.grad_input(gradient, weight, hidden, tf32=False),
    ]
    finite = [[run.isfinite().all().item() for run in result] for result in results]
    assert finite == [[True, False, True]] * 3


def test_of_no_examples_the_gradient_is_zero(layers):
    weight, bias = torch.ones(2, 1, 20, 17), torch.ones(2, 1, 1, 17)
    layers.grad_weight(torch.empty(2, 0, 20), torch.empty(2, 0, 17), weight, bias)
    assert not weight.any()
    assert not bias.any()
