"""On a GPU: a layer's kernels are as exact as torch's products in float32."""

import pytest
import torch

from engram.kernels import triton_works
from engram.lab.networks import mlp
from engram.lab.networks.mlp import grad_input, grad_weight, layer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(10, 784, 256), (256, 784, 256), (256, 256, 10), (1, 3, 2), (33, 65, 100), (17, 16, 16)]


def given(size, inputs, outputs, runs=3):
    source = torch.Generator("cuda").manual_seed(size)

    def draw(*shape):
        return torch.randn(runs, *shape, device="cuda", generator=source)

    return draw(size, inputs).relu_(), draw(inputs, outputs), draw(1, outputs), draw(size, outputs)


def everything(hidden, weight, bias, gradient, tf32=False):
    """A layer's output with and without ReLU, and its three gradients."""
    at_weight, at_bias = torch.empty_like(weight), torch.empty_like(bias)
    grad_weight(hidden, gradient, at_weight.unsqueeze(1), at_bias.unsqueeze(1), tf32=tf32)
    return [
        layer(hidden, weight, bias, rectify=False, tf32=tf32),
        layer(hidden, weight, bias, rectify=True, tf32=tf32),
        grad_input(gradient, weight, hidden, tf32=tf32),
        at_weight,
        at_bias,
    ]


def errors(results, exact):
    pairs = zip(results, exact, strict=True)
    return [((result.double() - right).norm() / right.norm()).item() for result, right in pairs]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_they_are_as_exact_as_torch_is(shape, monkeypatch):
    tensors = given(*shape)
    assert triton_works(tensors[0])
    exact = everything(*(tensor.double() for tensor in tensors))
    ours = errors(everything(*tensors), exact)
    rounded = errors(everything(*tensors, tf32=True), exact)
    monkeypatch.setattr(mlp, "triton_works", lambda _: False)
    theirs = errors(everything(*tensors), exact)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine < max(2 * other, 3e-7)
    assert all(mine < 2e-3 for mine in rounded)


def test_they_write_between_what_is_not_theirs_and_read_what_is_shared():
    hidden, weight, bias, gradient = given(40, 24, 12)
    flat = torch.zeros(3, 24 * 12 + 12 + 5, device="cuda")
    at_weight, at_bias = flat[:, : 24 * 12].view(3, 24, 12), flat[:, 24 * 12 : -5].view(3, 1, 12)
    grad_weight(hidden, gradient, at_weight.unsqueeze(1), at_bias.unsqueeze(1), tf32=False)
    torch.testing.assert_close(at_weight, hidden.mT @ gradient, rtol=1e-4, atol=1e-4)
    assert not flat[:, -5:].any()
    shared = hidden[:1].expand(3, -1, -1)
    torch.testing.assert_close(
        layer(shared, weight, bias, rectify=True, tf32=False),
        torch.baddbmm(bias, shared, weight).relu(),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_trouble_stays_visible_and_at_home(bad):
    hidden, weight, bias, gradient = given(256, 784, 256)
    weight[1, 5, 7] = bad
    results = everything(hidden, weight, bias, gradient)
    finite = [[run.isfinite().all().item() for run in result] for result in results]
    assert finite == [[True, False, True]] * 3 + [[True] * 3] * 2
