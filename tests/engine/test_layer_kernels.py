"""The kernels of a layer and of a loss, played through by Triton's interpreter on a CPU."""

import pytest
import torch

from engram.engine import Batch, cross_entropy

SHAPES = [(3, 20, 17), (10, 33, 40), (70, 64, 10), (1, 5, 2), (64, 32, 64)]  # B, inputs, outputs


@pytest.fixture(scope="module")
def layers():
    pytest.importorskip("triton", reason="needs Triton")
    if torch.cuda.is_available():
        pytest.skip("they are compiled, and tested on the GPU")
    from engram.models import _triton_products

    return _triton_products


@pytest.fixture(scope="module")
def entropies(layers):
    assert layers
    from engram.engine import _triton_entropies

    return _triton_entropies.entropies


@pytest.mark.parametrize(("size", "inputs", "outputs"), SHAPES)
def test_a_layer_and_its_gradients(layers, size, inputs, outputs):
    hidden, gradient = torch.randn(2, size, inputs).relu(), torch.randn(2, size, outputs)
    weight, bias = torch.randn(2, inputs, outputs), torch.randn(2, 1, outputs)
    exact = torch.baddbmm(bias.double(), hidden.double(), weight.double())
    for rectify, expected in ((False, exact), (True, exact.relu())):
        ours = layers.layer(hidden, weight, bias, rectify=rectify, tf32=False)
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-4)
    ours = layers.before(gradient, weight, hidden, tf32=False)
    expected = (gradient.double() @ weight.double().mT) * (hidden > 0)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-4)
    flat = torch.zeros(2, inputs * outputs + outputs + 7)  # others lie behind them
    at_weight = flat[:, : inputs * outputs].view(2, inputs, outputs)
    at_bias = flat[:, inputs * outputs : -7].view(2, 1, outputs)
    layers.learn(hidden, gradient, at_weight, at_bias, tf32=False)
    torch.testing.assert_close(
        at_weight.double(), hidden.double().mT @ gradient.double(), rtol=1e-5, atol=1e-4
    )
    torch.testing.assert_close(
        at_bias.double(), gradient.double().sum(1, keepdim=True), rtol=1e-5, atol=1e-4
    )
    assert not flat[:, -7:].any()


@pytest.mark.parametrize(("size", "groups"), [(10, 1), (256, 1), (12, 3), (1, 1)])
@pytest.mark.parametrize("classes", [2, 10, 200])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(entropies, size, groups, classes, weighted):
    logits, labels = 5 * torch.randn(2, size, classes), torch.randint(classes, (2, size))
    weights = torch.rand(2, size) if weighted else None
    losses, gradient = cross_entropy(logits.double(), Batch(logits, labels, weights, groups))
    ours, at_logits = entropies(logits, labels, weights, groups)
    torch.testing.assert_close(ours.double(), losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(at_logits.double(), gradient, rtol=1e-5, atol=1e-7)
