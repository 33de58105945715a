"""On a GPU: batch norm and ReLU by kernels of their own, beside torch's in float64."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from engram.lab.networks import ResNet, residual
from engram.lab.networks.residual import Averages, has_kernels, rectified_norm

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(1, 1, 1, 2), (10, 20, 32, 32), (7, 40, 17, 5), (128, 64, 28, 28), (3, 160, 4, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("readers", [(0,), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_comes_out_and_what_goes_back(shape, beside, readers, dtype):
    source = torch.Generator("cuda").manual_seed(0)

    def drawn(size):
        return 2 * torch.randn(size, device="cuda", generator=source) + 1

    images = [drawn(shape).to(dtype).contiguous(memory_format=torch.channels_last) for _ in "ab"]
    leaves = [images[0], drawn(shape[1]), drawn(shape[1]), *images[1 : 1 + beside]]
    leaves = [each.requires_grad_() for each in leaves]
    assert has_kernels(leaves[0]) == (shape[1] >= 64)  # with fewer channels torch is faster
    averages = [torch.zeros(shape[1], device="cuda"), torch.ones(shape[1], device="cuda")]
    wide = [each.double() for each in averages]
    exact = functional.batch_norm(
        leaves[0].double(), *wide, *(each.double() for each in leaves[1:3]), True, 0.1, 1e-3
    )
    before = exact + leaves[3].double() if beside else exact
    exact = before.relu()
    given = (*leaves[:3], leaves[3] if beside else None)
    twice = rectified_norm(*given, Averages(*averages, 0.1), 1e-3)
    ours = twice[0]
    atol = 2e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(ours.double(), exact, rtol=1e-2, atol=atol)
    torch.testing.assert_close([each.double() for each in averages], wide, rtol=1e-4, atol=1e-4)
    certain = before.abs() >= 0.1  # where rounding does not decide
    back = [
        (torch.randn(shape, device="cuda", generator=source) * certain).to(dtype) for _ in readers
    ]
    found = torch.autograd.grad([twice[reader] for reader in readers], leaves, back)
    expected = torch.autograd.grad(exact, leaves, sum(each.double() for each in back))
    for mine, right in zip(found, expected, strict=True):
        largest = right.abs().max().item() + 1
        torch.testing.assert_close(mine.double(), right.double(), rtol=0, atol=atol * largest)


def test_a_network_learns_the_same(monkeypatch):
    network, ends = ResNet(5, 32), []
    source = torch.Generator("cuda").manual_seed(0)
    images = torch.rand(1, 10, 3, 32, 32, device="cuda", generator=source)
    parameters = network.initialise(np.random.default_rng(0)).cuda().unsqueeze(0)
    for kernels in (has_kernels, lambda _: False):
        monkeypatch.setattr(residual, "has_kernels", kernels)
        buffers = network.initial_buffers(parameters)
        rows = torch.empty(1, 1, network.size, device="cuda")
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            logits, tape = network.forward(parameters, images, buffers)
            network.backward(parameters, tape, torch.ones_like(logits).cumsum(-1) / 30, rows)
        ends.append([logits, rows, buffers])
    for ours, right in zip(*ends, strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-2, atol=1e-3 * right.abs().max().item())
