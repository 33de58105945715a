"""On a GPU: pixels are scaled as torch scales them there, to the bit, and nearly as on a CPU."""

import pytest
import torch

from engram.kernels import triton_works
from engram.streams import _permuted
from engram.streams._permuted import PermutedMnist

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(1, 1, 784), (5, 10, 784), (64, 256, 784), (2049,), (3, 0, 784)]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_pixels(shape, monkeypatch):
    pixels = torch.randint(256, shape, dtype=torch.uint8, device="cuda")
    assert triton_works(pixels, torch.uint8)
    ours = PermutedMnist.normalise(None, pixels)
    torch.testing.assert_close(ours.cpu(), PermutedMnist.normalise(None, pixels.cpu()))
    monkeypatch.setattr(_permuted, "triton_works", lambda *_: False)
    assert torch.equal(ours, PermutedMnist.normalise(None, pixels))
